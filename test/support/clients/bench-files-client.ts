import { once } from 'node:events';
import { connect, type Socket } from 'node:net';

/** A request, or its body: `head`, `size` bytes made of `piece`, `suffix`. */
export interface Request {
  readonly head: Buffer;
  readonly piece: Buffer;
  readonly size: number;
  readonly suffix: Buffer;
}

/** Sends everything; returns the start of the response, or nothing when the connection ends without one. */
export async function sendAndWait(port: number, { head, piece, size, suffix }: Request): Promise<string> {
  const socket = connect(port, '127.0.0.1');
  const closed = once(socket, 'close');
  let answer = '';
  socket.on('data', (bytes) => {
    answer += bytes.toString('latin1');
    socket.destroy();
  });
  await write(socket, head);
  for (let sent = 0; sent < size; sent += piece.length) await write(socket, piece);
  await write(socket, suffix);
  // An HTTP server would take a half-closed connection for a client that has disconnected.
  if (head.length === 0) socket.end();
  await closed;
  return answer;
}

async function write(socket: Socket, bytes: Buffer): Promise<void> {
  if (bytes.length > 0 && !socket.write(bytes)) await once(socket, 'drain');
}

/** Reads a response with a body of `size` bytes and discards it. */
export async function received(port: number, request: string, size: number): Promise<void> {
  const connection = new Connection(port);
  const length = await connection.ask(Buffer.from(request));
  connection.close();
  if (length !== size) throw new Error(`expected ${size} bytes, not ${length}`);
}

/** Requests with small responses a second, over `connections` connections. */
export async function filesPerSecond(
  port: number,
  requests: readonly Buffer[],
  connections: number,
): Promise<number> {
  const queue = requests.values();
  const started = performance.now();
  await Promise.all(
    Array.from({ length: connections }, async () => {
      const connection = new Connection(port);
      for (const request of queue) await connection.ask(request);
      connection.close();
    }),
  );
  return requests.length / ((performance.now() - started) / 1000);
}

/** A client with little overhead: one response at a time, each with Content-Length or 204. */
class Connection {
  readonly #socket: Socket;
  #head = '';
  #length = 0;
  #left = -1;
  #answered = Promise.withResolvers<number>();

  constructor(port: number) {
    const buffer = Buffer.allocUnsafe(1024 ** 2);
    const onread = {
      buffer,
      callback: (length: number) => {
        this.#take(buffer.subarray(0, length));
        return true;
      },
    };
    this.#socket = connect({ host: '127.0.0.1', port, onread, noDelay: true });
    this.#socket.once('close', () => this.#answered.reject(new Error(`no answer: ${this.#head}`)));
  }

  /** Returns the length of the body. */
  ask(request: Buffer): Promise<number> {
    this.#answered = Promise.withResolvers<number>();
    this.#head = '';
    this.#left = -1;
    this.#socket.write(request);
    return this.#answered.promise;
  }

  close(): void {
    this.#answered.promise.catch(() => {});
    this.#socket.destroy();
  }

  #take(bytes: Buffer): void {
    if (this.#left < 0) this.#takeHead(bytes);
    else this.#left -= bytes.length;
    if (this.#left === 0) this.#answered.resolve(this.#length);
  }

  #takeHead(bytes: Buffer): void {
    const before = this.#head.length;
    this.#head += bytes.toString('latin1');
    const end = this.#head.indexOf('\r\n\r\n') + 4;
    if (end < 4) return;
    const head = this.#head.slice(0, end);
    if (!/^HTTP\/1.1 20[04]/.test(head)) throw new Error(head);
    this.#length = head.startsWith('HTTP/1.1 204') ? 0 : Number(/^content-length: (\d+)/im.exec(head)?.[1]);
    this.#left = this.#length - (before + bytes.length - end);
  }
}
