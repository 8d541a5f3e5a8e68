import { closeSync } from 'node:fs';
import { Socket } from 'node:net';
import type { Writable } from 'node:stream';
import { native, type PipeReader } from './native.ts';

/** What one read takes, in bytes. */
const ROOM_BYTES = 64 * 1024;

/** Reads pipes, all of them into one buffer; what was read is copied out at once, so that no read makes one of its own. */
export class PipePoller {
  readonly #room = Buffer.allocUnsafeSlow(ROOM_BYTES);
  /** Those that are open, by the reader's number. */
  readonly #open = new Map<number, ReadEnd>();
  #reader: PipeReader | null = null;

  /** Reads a pipe from now on. Its descriptor is the result's. */
  read(descriptor: number, onBytes: (bytes: Buffer) => void): ReadEnd {
    this.#reader ??= native.pipeReader(this.#room, (pipe, length) => this.#take(pipe, length));
    const pipe = this.#reader.open(descriptor);
    const end = new ReadEnd(this.#reader, pipe, descriptor, onBytes);
    this.#open.set(pipe, end);
    return end;
  }

  /** What the reader tells: the first `length` bytes of the room, or the end. */
  #take(pipe: number, length: number): void {
    const end = this.#open.get(pipe);
    if (length > 0) {
      end?.take(Buffer.from(this.#room.subarray(0, length)));
      return;
    }
    this.#open.delete(pipe);
    end?.finish();
  }
}

/** The reading end of a pipe, which owns its descriptor. */
export class ReadEnd {
  /** Settles when nobody holds the writing end any more and all was read. */
  readonly closed: Promise<void>;
  /** Takes what was read. */
  readonly take: (bytes: Buffer) => void;
  readonly #reader: PipeReader;
  readonly #pipe: number;
  readonly #descriptor: number;
  readonly #onClosed: () => void;
  #isClosed = false;

  /** Made by `PipePoller.read`. `pipe`: its number there. */
  constructor(reader: PipeReader, pipe: number, descriptor: number, onBytes: (bytes: Buffer) => void) {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.closed = promise;
    this.#onClosed = resolve;
    this.take = onBytes;
    this.#reader = reader;
    this.#pipe = pipe;
    this.#descriptor = descriptor;
  }

  setPaused(paused: boolean): void {
    if (!this.#isClosed) this.#reader.setPaused(this.#pipe, paused);
  }

  /** Bytes that were written and have not been told. Source: FIONREAD, pipe(7). */
  get pending(): number {
    return this.#isClosed ? 0 : native.pendingBytes(this.#descriptor);
  }

  /** Lets the event loop end while this is open. */
  unref(): void {
    if (!this.#isClosed) this.#reader.unref(this.#pipe);
  }

  /** Takes note that its descriptor has been closed. */
  finish(): void {
    this.#isClosed = true;
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
