/** A sandbox that waits for its expiry. */
export interface Waiting {
  readonly id: string;
  /** The machine that it is on, as far as that is known. */
  readonly host: string;
  /** Expiries that have failed in a row: the sandbox is likely dead. */
  readonly failures: number;
}

export interface LaneLimits {
  /** The most expiries at a time. */
  readonly maxExpiries: number;
  /** The most of them on one host. */
  readonly maxExpiriesPerHost: number;
}

/** The part of all expiries that sandboxes whose last one has failed may have. */
const FAILED_PART = 4;

/** Shares out the expiries of one gateway, so that dead hosts and sandboxes do not delay the others. */
export class Lanes {
  readonly #limits: LaneLimits;
  readonly #taken = new Map<string, Waiting>();

  constructor(limits: LaneLimits) {
    this.#limits = limits;
  }

  has(id: string): boolean {
    return this.#taken.has(id);
  }

  get isFull(): boolean {
    return this.#taken.size >= this.#limits.maxExpiries;
  }

  /** Takes a place. Returns false when there is none for this sandbox. */
  take(waiting: Waiting): boolean {
    const { maxExpiries, maxExpiriesPerHost } = this.#limits;
    if (this.isFull || this.has(waiting.id)) return false;
    if (this.#count(({ host }) => host === waiting.host) >= maxExpiriesPerHost) return false;
    const failed = Math.max(1, Math.floor(maxExpiries / FAILED_PART));
    if (waiting.failures > 0 && this.#count(({ failures }) => failures > 0) >= failed) return false;
    this.#taken.set(waiting.id, waiting);
    return true;
  }

  release(id: string): void {
    this.#taken.delete(id);
  }

  #count(isIt: (waiting: Waiting) => boolean): number {
    let count = 0;
    for (const each of this.#taken.values()) if (isIt(each)) count++;
    return count;
  }
}
