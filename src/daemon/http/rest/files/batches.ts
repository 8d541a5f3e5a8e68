import { finished, type Readable } from 'node:stream';
import type { Semaphore } from '../../../../base/semaphore.ts';
import { bodyError } from './body.ts';

/** A batch has about this many bytes. Where there is room it is larger, because larger writes make uploads faster. */
const BATCH_BYTES = 64 * 1024;
const LARGE_BATCH_BYTES = 512 * 1024;
const BATCH_PIECES = 1024;
/** Two batches are kept at a time, because one is collected while the other one is written. */
const ROOM = 2 * (LARGE_BATCH_BYTES - BATCH_BYTES);

/**
 * Iterates over the rest of a request's body in batches, which belong to the reader. The next batch is collected while the reader
 * uses the last one. A reader that stops early does not destroy the stream, which may be the request, but leaves it paused. `room`
 * has the bytes that all uploads together may keep for batches of more than 64 KiB. Throws the errors of `bodyError`.
 */
export class ContentBatches implements AsyncIterableIterator<Buffer[]> {
  readonly #source: Readable;
  readonly #room: Semaphore;
  #stopWaiting: () => void = () => {};
  /** A batch with this many bytes is full. */
  #full = BATCH_BYTES;
  #batch: Buffer[] = [];
  #bytes = 0;
  #hasEnded = false;
  #error: unknown = null;
  #wake: () => void = () => {};

  constructor(source: Readable, room: Semaphore) {
    this.#source = source;
    this.#room = room;
  }

  [Symbol.asyncIterator](): this {
    this.#stopWaiting = finished(this.#source, { writable: false }, (error) => this.#end(error));
    this.#source.on('data', this.#take);
    return this;
  }

  async next(): Promise<IteratorResult<Buffer[], undefined>> {
    this.#growIfThereIsRoom();
    if (!this.#hasEnded && !this.#isFull) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#wake = resolve;
      // The source is paused if the batch was full before there was room for a large one.
      if (this.#source.isPaused()) this.#source.resume();
      await promise;
    }
    const batch = this.#batch;
    this.#batch = [];
    this.#bytes = 0;
    if (this.#error !== null || batch.length === 0) await this.return();
    if (this.#error !== null) throw bodyError(this.#error);
    if (batch.length === 0) return { value: undefined, done: true };
    if (!this.#hasEnded) this.#source.resume();
    return { value: batch, done: false };
  }

  async return(): Promise<IteratorResult<Buffer[], undefined>> {
    this.#stopWaiting();
    this.#source.off('data', this.#take).pause();
    if (this.#full === LARGE_BATCH_BYTES) this.#room.release(ROOM);
    this.#full = BATCH_BYTES;
    return { value: undefined, done: true };
  }

  readonly #take = (piece: Buffer): void => {
    this.#batch.push(piece);
    this.#bytes += piece.length;
    this.#growIfThereIsRoom();
    if (!this.#isFull) return;
    this.#source.pause();
    this.#wake();
  };

  get #isFull(): boolean {
    return this.#batch.length >= BATCH_PIECES || this.#bytes >= this.#full;
  }

  /** Lets a batch of 64 KiB become a large one, if there is room for that. */
  #growIfThereIsRoom(): void {
    const isSmall = this.#full === BATCH_BYTES && this.#batch.length < BATCH_PIECES;
    if (isSmall && this.#bytes >= BATCH_BYTES && this.#room.take(ROOM)) this.#full = LARGE_BATCH_BYTES;
  }

  #end(error: Error | null | undefined): void {
    this.#hasEnded = true;
    this.#error = error ?? null;
    this.#wake();
  }
}
