import { finished, type Readable } from 'node:stream';
import type { Allowance } from '../../../../base/allowance.ts';
import type { Sink } from '../../../services/files/uploads/sink.ts';

/** Limits of one batch, in bytes and pieces: larger writes make uploads faster. */
const BATCH_BYTES = 512 * 1024;
const BATCH_PIECES = 1024;
/** The bytes of a batch when there is no room. */
const LEAST_BYTES = 64 * 1024;

/**
 * Pushes the rest of `source` into `sink`; collects the next batch while one is written. Settles when no write is in
 * progress; rejects with the first error of `source` or `sink`. Does not destroy `source`, which may be a request.
 * `room`: bytes that all uploads together may keep for batches of more than 64 KiB; two batches are kept at a time.
 */
export function pump(source: Readable, sink: Sink, room: Allowance, batchBytes = BATCH_BYTES): Promise<void> {
  return new Pump(source, sink, room, batchBytes).run();
}

class Pump {
  readonly #source: Readable;
  readonly #sink: Sink;
  readonly #room: Allowance;
  readonly #most: number;
  readonly #done = Promise.withResolvers<void>();
  /** Bytes of a full batch. */
  #full = LEAST_BYTES;
  #batch: Buffer[] = [];
  #bytes = 0;
  #isWriting = false;
  #hasEnded = false;
  #error: unknown = null;

  constructor(source: Readable, sink: Sink, room: Allowance, most: number) {
    this.#source = source;
    this.#sink = sink;
    this.#room = room;
    this.#most = most;
  }

  async run(): Promise<void> {
    const removeListeners = finished(this.#source, { writable: false }, (error) => this.#end(error));
    this.#source.on('data', this.#take);
    try {
      await this.#done.promise;
    } finally {
      removeListeners();
      this.#source.off('data', this.#take);
      this.#room.release(2 * (this.#full - LEAST_BYTES));
    }
  }

  readonly #take = (piece: Buffer): void => {
    this.#batch.push(piece);
    this.#bytes += piece.length;
    if (!this.#isFull()) return;
    if (this.#isWriting) this.#source.pause();
    else this.#write();
  };

  #isFull(): boolean {
    if (this.#batch.length >= BATCH_PIECES) return true;
    if (this.#bytes >= this.#full) this.#grow();
    return this.#bytes >= this.#full;
  }

  #grow(): void {
    if (this.#full < this.#most && this.#room.take(2 * (this.#most - LEAST_BYTES))) this.#full = this.#most;
  }

  #write(): void {
    const batch = this.#batch;
    this.#batch = [];
    this.#bytes = 0;
    this.#isWriting = true;
    this.#sink.write(batch).then(
      () => this.#written(),
      (error) => this.#written(error),
    );
  }

  #written(error: unknown = null): void {
    this.#isWriting = false;
    this.#error ??= error;
    if (this.#error !== null) this.#end(this.#error);
    else if (this.#batch.length > 0 && (this.#hasEnded || this.#isFull())) this.#write();
    else if (this.#hasEnded) this.#done.resolve();
    if (this.#source.isPaused() && !this.#hasEnded) this.#source.resume();
  }

  #end(error: unknown): void {
    this.#hasEnded = true;
    this.#error ??= error ?? null;
    if (this.#error !== null) this.#source.pause();
    if (this.#isWriting) return;
    if (this.#error !== null) this.#done.reject(this.#error);
    else if (this.#batch.length > 0) this.#write();
    else this.#done.resolve();
  }
}
