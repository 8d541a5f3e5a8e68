import { EnvdError } from './errors.ts';

/** What is kept in memory because a client is slow. */
export interface Kept {
  /** Frees most of it, and tells so by `Unread.set`. */
  drop(reason: EnvdError): void;
  /** Whether its client has sent or taken something since the last call; without it, only `set` tells. */
  hasMoved?(): boolean;
}

/**
 * Bounds what is kept for slow clients, all together: beyond the limit, that is dropped whose clients have taken or sent
 * nothing for the longest time.
 */
export class Unread {
  readonly #limit: number;
  readonly #reason: string;
  /** In bytes; in the order in which their clients last moved. */
  readonly #kept = new Map<Kept, number>();
  #sum = 0;
  #dropped = 0;
  #isDropping = false;

  /** `reason`: of what is dropped. */
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

  /** How many have been dropped so far. */
  get dropped(): number {
    return this.#dropped;
  }

  /** Whether half of the limit is reached: what can be kept small should be. */
  get isScarce(): boolean {
    return this.#sum > this.#limit / 2;
  }

  /** Sets how much is kept, in bytes; 0: nothing. `isServed`: its client has just taken or sent something. */
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

  /** Those that have moved meanwhile go to the end; if all have, it is the first of them. */
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
