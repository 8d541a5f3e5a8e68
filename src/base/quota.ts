import { EnvdError } from './errors.ts';

/** Memory that is kept because a client is slow. */
export interface Kept {
  /** Frees most of the memory, and reports the rest by `Quota.set`. */
  drop(reason: EnvdError): void;
  /** Returns whether the client has made progress since the last call. Without this method, only `set` reports progress. */
  hasMoved?(): boolean;
}

/**
 * Limits the memory that is kept for all slow clients together. Beyond the limit, the client that has made no progress for the
 * longest time is dropped first.
 */
export class Quota {
  readonly #limit: number;
  readonly #reason: string;
  /** Bytes per client. The client that has made no progress for the longest time comes first. */
  readonly #kept = new Map<Kept, number>();
  #sum = 0;
  #dropped = 0;
  #isDropping = false;

  /** `reason` is the message for clients that are dropped. */
  constructor(
    limitBytes: number,
    reason = `reader dropped: more than ${limitBytes} bytes (--unread-bytes) wait for slow readers: read faster, or connect again`,
  ) {
    this.#limit = limitBytes;
    this.#reason = reason;
  }

  /** Bytes that are kept now. */
  get sum(): number {
    return this.#sum;
  }

  /** The number of clients that were dropped. */
  get dropped(): number {
    return this.#dropped;
  }

  /** Whether more than half of the limit is used, so that callers should keep less. */
  get isScarce(): boolean {
    return this.#sum > this.#limit / 2;
  }

  /** Sets how many bytes are kept; 0: none any more. `isServed` says that the client has just made progress. */
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

  /** Moves clients that have made progress to the end. If all of them have, the first one counts as the slowest. */
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
