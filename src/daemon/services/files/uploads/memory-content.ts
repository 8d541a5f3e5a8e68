import type { Semaphore } from '../../../../base/semaphore.ts';
import type { OpenFile } from '../../../linux/files/open-file.ts';
import { writeFully } from '../../../linux/files/write-fully.ts';
import { isNoSpace } from '../entries/errors.ts';
import type { WritableContent } from './commit.ts';

/** One file has at most this many bytes in memory. */
const MAX_IN_MEMORY = 1024 * 1024;

/**
 * Content that cannot be staged because the disk is full. It stays in memory until it is complete and can
 * overwrite the existing file. If it grows too large, writing throws `cause`, the reason why it could not be staged.
 */
export class MemoryContent implements WritableContent, AsyncDisposable {
  readonly cause: unknown;
  readonly #memory: Semaphore;
  /** This many bytes of the allowance are reserved. */
  #reserved: number;
  #batches: Buffer[] = [];
  #size = 0;

  /**
   * Reserves memory for all of the content. `size` bytes have been received of `length` announced ones, which is null
   * if it is unknown. Throws `cause` if it has another reason, or if the content cannot be kept in memory.
   */
  constructor(size: number, length: number | null, cause: unknown, memory: Semaphore) {
    const reserved = length ?? MAX_IN_MEMORY;
    const fits = isNoSpace(cause) && size <= reserved && reserved <= MAX_IN_MEMORY;
    if (!fits || !memory.take(reserved)) throw cause;
    this.cause = cause;
    this.#memory = memory;
    this.#reserved = reserved;
  }

  get size(): number {
    return this.#size;
  }

  async write(batch: readonly Buffer[]): Promise<void> {
    this.#size += batch.reduce((sum, { length }) => sum + length, 0);
    if (this.#size > this.#reserved) throw this.cause;
    this.#batches.push(Buffer.concat(batch));
  }

  async copyTo(target: OpenFile, offset: number): Promise<void> {
    await writeFully(target, this.#batches, offset, AbortSignal.any([]));
  }

  /** Releases the memory that was reserved and not used, when all content has been received. */
  complete(): void {
    this.#memory.release(this.#reserved - this.#size);
    this.#reserved = this.#size;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#memory.release(this.#reserved);
    this.#reserved = 0;
    this.#batches = [];
  }
}
