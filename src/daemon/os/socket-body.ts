import { closeSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { onAbort } from '../../base/abort.ts';
import { native } from './native.ts';

/** What Node's sockets have and its types do not tell. */
interface Handle {
  readonly fd: number;
  readStop(): void;
}

/**
 * The rest of a request's body, taken from Node's parser to be moved from the socket to a file by the kernel. Node reads
 * nothing more of the connection, which therefore ends with the answer.
 */
export class SocketBody implements Disposable {
  /** What Node had read already, in order. */
  readonly before: readonly Buffer[];
  readonly #socket: number;
  #left: number;

  private constructor(socket: number, before: readonly Buffer[], left: number) {
    this.#socket = socket;
    this.before = before;
    this.#left = left;
  }

  /** Takes a body of which nobody has read anything yet; null, and nothing taken, where that cannot be done. */
  static take(request: IncomingMessage): SocketBody | null {
    const length = announcedLength(request);
    const handle = handleOf(request);
    if (length === null || !handle || request.complete || request.readableDidRead) return null;
    const socket = native.duplicate(handle.fd);
    handle.readStop();
    // Reading from the request would start the socket again.
    request._read = () => {};
    const before: Buffer[] = [];
    for (let piece = request.read(); piece !== null; piece = request.read()) before.push(piece);
    const left = before.reduce((rest, { byteLength }) => rest - byteLength, length);
    return new SocketBody(socket, before, left);
  }

  /** Bytes that have not been moved yet. */
  get left(): number {
    return this.#left;
  }

  /**
   * Moves what has arrived to an open file, or drops it when that is null; resolves with the bytes, none when nothing had
   * come. Rejects with ECONNRESET when nothing more will come, and with the errors of writing.
   */
  async moveTo(file: number | null, position: number): Promise<number> {
    const moved = await native.receive(this.#socket, file, position, this.#left);
    this.#left -= moved;
    return moved;
  }

  /** Resolves when something has arrived, or the connection has ended; throws the reason of `signal`. */
  async arrival(signal: AbortSignal): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const cancel = native.awaitReadable(this.#socket, resolve);
    const forget = onAbort(signal, () => reject(signal.reason));
    try {
      await promise;
    } finally {
      forget();
      cancel();
    }
  }

  [Symbol.dispose](): void {
    closeSync(this.#socket);
  }
}

/** Null for a body in chunks: its frames are the parser's to read. */
function announcedLength({ headers }: IncomingMessage): number | null {
  const { 'content-length': length, 'transfer-encoding': coding } = headers;
  return length === undefined || coding !== undefined ? null : Number(length);
}

function handleOf({ socket }: IncomingMessage): Handle | null {
  const { _handle: handle } = socket as { _handle?: Partial<Handle> | null };
  return handle && Number(handle.fd) >= 0 && typeof handle.readStop === 'function'
    ? (handle as Handle)
    : null;
}
