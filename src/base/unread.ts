import { EnvdError } from './errors.ts';

/** What slow readers keep in memory. */
export interface Kept {
  /** Frees most of it, and tells so by `Unread.set`. */
  drop(reason: EnvdError): void;
}

/**
 * Bounds what is kept for slow readers, all together: beyond the limit, that is dropped whose readers have taken nothing
 * for the longest time.
 */
export class Unread {
  readonly #limit: number;
  /** In bytes; in the order in which their readers last took something. */
  readonly #kept = new Map<Kept, number>();
  #sum = 0;
  #isDropping = false;

  constructor(limitBytes: number) {
    this.#limit = limitBytes;
  }

  /** In bytes. */
  get sum(): number {
    return this.#sum;
  }

  /** Whether half of the limit is reached: what can be kept small should be. */
  get isScarce(): boolean {
    return this.#sum > this.#limit / 2;
  }

  /** Sets how much is kept, in bytes; 0: nothing. `isServed`: its reader has just taken something. */
  set(kept: Kept, bytes: number, isServed = false): void {
    this.#sum += bytes - (this.#kept.get(kept) ?? 0);
    if (isServed || bytes === 0) this.#kept.delete(kept);
    if (bytes > 0) this.#kept.set(kept, bytes);
    if (!this.#isDropping) this.#dropSlowest();
  }

  #dropSlowest(): void {
    this.#isDropping = true;
    while (this.#sum > this.#limit) {
      const [slowest] = this.#kept.keys();
      if (!slowest) break;
      const text = `reader dropped: more than ${this.#limit} bytes wait for slow readers (--unread-bytes)`;
      slowest.drop(new EnvdError('resource_exhausted', text));
    }
    this.#isDropping = false;
  }
}
