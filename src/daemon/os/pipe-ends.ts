import { closeSync } from 'node:fs';
import { Socket } from 'node:net';
import type { Writable } from 'node:stream';
import { native, type PipeReader } from './native.ts';

/** Where all pipes are read into; what was read is copied out at once, so that each read makes no buffer of its own. */
const ROOM = Buffer.allocUnsafeSlow(64 * 1024);
/** Those that are open, by the reader's number. */
const open = new Map<number, ReadEnd>();
let reader: PipeReader | null = null;

function take(pipe: number, length: number): void {
  open.get(pipe)?.take(length);
}

/** The reading end of a pipe, which owns its descriptor. */
export class ReadEnd {
  /** Settles when nobody holds the writing end any more and all was read. */
  readonly closed: Promise<void>;
  readonly #descriptor: number;
  readonly #pipe: number;
  readonly #onBytes: (bytes: Buffer) => void;
  readonly #onClosed: () => void;
  #isClosed = false;

  constructor(descriptor: number, onBytes: (bytes: Buffer) => void) {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.closed = promise;
    this.#onClosed = resolve;
    this.#onBytes = onBytes;
    this.#descriptor = descriptor;
    reader ??= native.pipeReader(ROOM, take);
    this.#pipe = reader.open(descriptor);
    open.set(this.#pipe, this);
  }

  setPaused(paused: boolean): void {
    if (!this.#isClosed) reader?.setPaused(this.#pipe, paused);
  }

  /** Bytes that were written and have not been told. Source: FIONREAD, pipe(7). */
  get pending(): number {
    return this.#isClosed ? 0 : native.pendingBytes(this.#descriptor);
  }

  /** Lets the event loop end while this is open. */
  unref(): void {
    if (!this.#isClosed) reader?.unref(this.#pipe);
  }

  /** What the reader tells: the first `length` bytes of the room, or the end. */
  take(length: number): void {
    if (length > 0) {
      this.#onBytes(Buffer.from(ROOM.subarray(0, length)));
      return;
    }
    this.#isClosed = true;
    open.delete(this.#pipe);
    this.#onClosed();
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
