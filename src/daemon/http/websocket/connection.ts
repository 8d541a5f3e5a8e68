import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { createWebSocketStream, WebSocket } from 'ws';
import { EnvdError } from '../../../base/errors.ts';
import type { Quota } from '../../../base/quota.ts';
import { statusOf } from '../admission/errors.ts';
import { UnsentBytes } from '../protocol/unsent-bytes.ts';

/** This many messages of a client are taken ahead; then its connection is read no more. */
const MOST_AHEAD = 4;
/** This many bytes wait for the client before its stream is full. */
const MOST_UNSENT = 64 * 1024;
/** A quiet connection gets a ping at this interval, so that no proxy closes it, and a client that has gone is noticed. */
const PING_MS = 30_000;
/** When the daemon stops or is replaced, a client has this long to close its side, in milliseconds. */
const LEAVE_MS = 250;
/** Close codes. Source: RFC 6455, section 7.4, and IANA's registry. */
const NORMAL = 1000;
const SERVICE_RESTART = 1012;
/** The code of an error is its HTTP status above this number. */
const OF_STATUS = 4000;
/** The most bytes of the reason in a close frame. Source: RFC 6455, section 5.5. */
const MOST_REASON = 123;

/** The server's side of an open WebSocket. */
export class WebSocketConnection {
  /** The messages of the client: text as strings, other messages as buffers. What is written goes out as binary messages. */
  readonly stream: Duplex;
  readonly #socket: WebSocket;
  readonly #transport: Socket;
  readonly #sending: UnsentBytes;

  constructor(
    socket: WebSocket,
    transport: Socket,
    { streamOf, unread }: { streamOf: typeof createWebSocketStream; unread: Quota },
  ) {
    this.#socket = socket;
    this.#transport = transport;
    this.#sending = new UnsentBytes(transport, unread);
    const limits = { readableHighWaterMark: MOST_AHEAD, writableHighWaterMark: MOST_UNSENT };
    // What ends the connection ends the stream, too, and is nobody's fault here.
    socket.on('error', () => {});
    this.stream = streamOf(socket, { ...limits, readableObjectMode: true }).on('error', () => {});
    const ping = setInterval(() => this.#ping(), PING_MS).unref();
    socket.once('close', () => clearInterval(ping));
  }

  /** Sends a text or a binary message. Resolves when the kernel has taken it. Throws `aborted` when the connection is closed or closing. */
  async send(message: string | Uint8Array): Promise<void> {
    this.#sending.wait(this.#transport.writableLength + message.length);
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#socket.send(message, (cause) => {
      if (cause) reject(new EnvdError('aborted', 'client disconnected', { cause }));
      else resolve();
    });
    await promise.finally(() => this.#sending.taken());
  }

  /** Whether the closing handshake has begun, or the connection is closed. */
  get isClosing(): boolean {
    return this.#socket.readyState !== this.#socket.OPEN;
  }

  onStall(listener: () => void): void {
    this.#sending.onStall(listener);
  }

  /** Says why and closes the connection: null is the normal end. Later calls change nothing. */
  close(error: unknown): void {
    if (error === null) {
      this.#socket.close(NORMAL);
      return;
    }
    const { code, message } = statusOf(error);
    const isOver = error instanceof EnvdError && error.kind === 'unavailable';
    this.#socket.close(isOver ? SERVICE_RESTART : OF_STATUS + code, cut(message));
    if (isOver) setTimeout(() => this.#socket.terminate(), LEAVE_MS).unref();
  }

  #ping(): void {
    if (this.#transport.writableLength === 0 && this.#socket.readyState === this.#socket.OPEN)
      this.#socket.ping();
  }
}

/** Returns the begin of a text that fits into a close frame. A character that is cut is left out. */
function cut(text: string): string {
  const bytes = Buffer.from(text);
  if (bytes.length <= MOST_REASON) return text;
  return new TextDecoder().decode(bytes.subarray(0, MOST_REASON - 3), { stream: true });
}
