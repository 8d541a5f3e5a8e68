import { closeSync, writeSync } from 'node:fs';
import { Writable } from 'node:stream';
import { isSystemError } from '../../../base/errors.ts';
import { awaitReady } from '../lanes/readiness.ts';

/** Bytes written per turn of the event loop, however fast the program reads. */
const TURN_BYTES = 1024 * 1024;
/** Interval of attempts to write when no descriptor is left to wait with, in milliseconds. */
const RETRY_MS = 50;

/**
 * Writes to a non-blocking pipe or terminal. Not a stream of Node: libuv writes in a busy loop to a terminal that it
 * cannot reopen, so a program that does not read would block the event loop; and it does not tell which bytes were
 * written.
 */
export class DescriptorInput extends Writable {
  readonly #descriptor: number;
  readonly #owns: boolean;
  #taken = 0;
  #cancel: () => void = () => {};

  /** `owns`: whether it closes the descriptor. */
  constructor(descriptor: number, owns: boolean) {
    super();
    this.#descriptor = descriptor;
    this.#owns = owns;
  }

  /** Bytes of the piece being written that the kernel has taken. */
  get takenBytes(): number {
    return this.#taken;
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error) => void): void {
    const end = Math.min(chunk.length, this.#taken + TURN_BYTES);
    try {
      while (this.#taken < end)
        this.#taken += writeSync(this.#descriptor, chunk, this.#taken, end - this.#taken);
    } catch (error) {
      if (!isSystemError(error, 'EAGAIN')) {
        done(error as Error);
        return;
      }
    }
    if (this.#taken < chunk.length) {
      this.#cancel = this.#whenWritable(() => this._write(chunk, _encoding, done));
      return;
    }
    this.#taken = 0;
    done();
  }

  /** Waiting needs a descriptor; if none is available, `retry` is called after a delay. */
  #whenWritable(retry: () => void): () => void {
    try {
      return awaitReady(this.#descriptor, true, retry);
    } catch (error) {
      if (!isSystemError(error)) throw error;
      const timer = setTimeout(retry, RETRY_MS).unref();
      return () => clearTimeout(timer);
    }
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#cancel();
    if (this.#owns) closeSync(this.#descriptor);
    done(error);
  }
}
