import { once } from 'node:events';
import { onTestFinished } from 'vitest';
import { WebSocket } from 'ws';
import { until } from '../until.ts';

export interface Closed {
  readonly code: number;
  readonly reason: string;
}

/** A WebSocket of a client, with everything that it has got. */
export class TestSocket {
  readonly socket: WebSocket;
  /** The text messages, which are JSON. */
  readonly told: Record<string, unknown>[] = [];
  readonly closed: Promise<Closed>;
  /** The length of all binary messages so far. */
  length = 0;
  #pieces: Buffer[] = [];

  /** Opens one. Throws when the server does not. `url`: of the daemon. */
  static async open(
    url: string,
    path: string,
    { protocols = [], headers = {} }: { protocols?: string[]; headers?: Record<string, string> } = {},
  ): Promise<TestSocket> {
    const socket = new WebSocket(url.replace(/^http/, 'ws') + path, protocols, { headers });
    const opened = new TestSocket(socket);
    onTestFinished(() => socket.terminate());
    await once(socket, 'open');
    return opened;
  }

  private constructor(socket: WebSocket) {
    this.socket = socket;
    socket.on('message', (data: Buffer, isBinary) => {
      if (isBinary) {
        this.#pieces.push(data);
        this.length += data.length;
      } else this.told.push(JSON.parse(String(data)));
    });
    this.closed = new Promise((resolve) =>
      socket.once('close', (code, reason) => resolve({ code, reason: String(reason) })),
    );
    socket.on('error', () => {});
  }

  /** All binary messages so far. */
  get bytes(): Buffer {
    this.#pieces = [Buffer.concat(this.#pieces)];
    return this.#pieces[0] ?? Buffer.alloc(0);
  }

  get text(): string {
    return this.bytes.toString();
  }

  /** Waits until the binary messages match. */
  shows(seen: RegExp): Promise<string> {
    return until(
      `the socket shows ${seen}`,
      () => this.text,
      (text) => seen.test(text),
    );
  }

  send(message: string | Buffer | object): void {
    const isJson = typeof message === 'object' && !Buffer.isBuffer(message);
    this.socket.send(isJson ? JSON.stringify(message) : message);
  }

  /** The first text message of a type. */
  async message(type: string): Promise<Record<string, unknown>> {
    return until(`the message ${type}`, () => this.told.find((one) => one.type === type));
  }
}

/** The status and the body of the answer to a request for a WebSocket that the server refuses. */
export async function refusalOf(
  url: string,
  path: string,
  protocols: string[] = [],
  headers: Record<string, string> = {},
): Promise<{ status: number; body: string }> {
  const socket = new WebSocket(url.replace(/^http/, 'ws') + path, protocols, { headers });
  socket.on('error', () => {});
  const [, response] = await once(socket, 'unexpected-response');
  const pieces: Buffer[] = [];
  for await (const piece of response) pieces.push(piece);
  return { status: response.statusCode, body: Buffer.concat(pieces).toString() };
}

/** A token as a subprotocol. */
export const tokenProtocol = (token: string) => `envd.token.${Buffer.from(token).toString('base64url')}`;
