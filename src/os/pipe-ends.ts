import { closeSync } from 'node:fs';
import { Socket } from 'node:net';
import type { Writable } from 'node:stream';
import { pendingBytes } from './pipes.ts';

/** Where all pipes are read into; what was read is copied out at once, so that each read makes no buffer of its own. */
const ROOM = Buffer.allocUnsafeSlow(64 * 1024);

/** The reading end of a pipe, which owns its descriptor. */
export class ReadEnd {
  /** Settles when nobody holds the writing end any more and all was read, or after `close`. */
  readonly closed: Promise<void>;
  readonly #descriptor: number;
  readonly #socket: Socket;

  constructor(descriptor: number, onBytes: (bytes: Buffer) => void) {
    this.#descriptor = descriptor;
    const callback = (length: number) => {
      onBytes(Buffer.from(ROOM.subarray(0, length)));
      return true;
    };
    const onread = { buffer: ROOM, callback };
    this.#socket = new Socket({ fd: descriptor, readable: true, writable: false, onread });
    this.#socket.on('error', () => {}); // 'close' follows.
    this.closed = new Promise((resolve) => this.#socket.once('close', () => resolve()));
    this.#socket.resume();
  }

  setPaused(paused: boolean): void {
    if (paused) this.#socket.pause();
    else this.#socket.resume();
  }

  /** Bytes that were written and have not been told. */
  get pending(): number {
    return this.#socket.destroyed || this.#socket.readableEnded ? 0 : pendingBytes(this.#descriptor);
  }

  /** Lets the event loop end while this is open. */
  unref(): void {
    this.#socket.unref();
  }
}

/** The writing end of a pipe, which owns its descriptor; most are never written to. */
export class WriteEnd {
  readonly #descriptor: number;
  #socket: Socket | null = null;
  #ended = false;

  constructor(descriptor: number) {
    this.#descriptor = descriptor;
  }

  open(): Writable {
    this.#socket ??= new Socket({ fd: this.#descriptor, readable: false, writable: true });
    return this.#socket;
  }

  /** Closes it when all has been written; idempotent. */
  end(): void {
    if (this.#ended) return;
    this.#ended = true;
    if (!this.#socket) closeSync(this.#descriptor);
    else if (!this.#socket.destroyed) this.#socket.end();
  }

  /** Closes it at once; what has not been written is lost. */
  destroy(): void {
    this.#socket?.destroy();
    this.end();
  }
}
