import { EnvdError } from './errors.ts';

/** Memory that is kept because a client is slow. */
export interface Kept {
  /** Frees most of it, and reports that by `Unread.set`. */
  drop(reason: EnvdError): void;
  /** Whether its client has made progress since the last call; without this method, only `set` tells. */
  hasMoved?(): boolean;
}

/**
 * Bounds the memory that is kept for all slow clients together. Beyond the limit, the client that has made no progress
 * for the longest time is dropped first.
 */
export class Unread {
  readonly #limit: number;
  readonly #reason: string;
  /** In bytes; the client that has been idle longest comes first. */
  readonly #kept = new Map<Kept, number>();
  #sum = 0;
  #dropped = 0;
  #isDropping = false;

  /** `reason`: the message for clients that are dropped. */
  constructor(
    limitBytes: number,
    reason = `reader dropped: more than ${limitBytes} bytes wait for slow readers (--unread-bytes)`,
  ) {
    this.#limit = limitBytes;
    this.#reason = reason;
  }

  /** In bytes. */
  get sum(): number {
    return this.#sum;
  }

  /** The number of clients dropped so far. */
  get dropped(): number {
    return this.#dropped;
  }

  /** Whether more than half of the limit is used: time to keep less. */
  get isScarce(): boolean {
    return this.#sum > this.#limit / 2;
  }

  /** Sets how much is kept, in bytes; 0: nothing any more. `isServed`: the client has just made progress. */
  set(kept: Kept, bytes: number, isServed = false): void {
    this.#sum += bytes - (this.#kept.get(kept) ?? 0);
    if (isServed || bytes === 0) this.#kept.delete(kept);
    if (bytes > 0) this.#kept.set(kept, bytes);
    if (!this.#isDropping) this.#dropSlowest();
  }

  #dropSlowest(): void {
    this.#isDropping = true;
    while (this.#sum > this.#limit) {
      const slowest = this.#slowest();
      if (!slowest) break;
      this.#dropped++;
      slowest.drop(new EnvdError('resource_exhausted', this.#reason));
    }
    this.#isDropping = false;
  }

  /** Clients that have made progress meanwhile go to the end; if all have, the first of them is the slowest. */
  #slowest(): Kept | undefined {
    for (let left = this.#kept.size; left > 0; left--) {
      const [first] = this.#kept;
      if (!first) return undefined;
      const [kept, bytes] = first;
      if (!kept.hasMoved?.()) return kept;
      this.#kept.delete(kept);
      this.#kept.set(kept, bytes);
    }
    return this.#kept.keys().next().value;
  }
}
