/** A sandbox that is waiting for its expiry. */
export interface Waiting {
  readonly id: string;
  /** The machine that it is on, if known. */
  readonly host: string;
  /** The number of expiries that have failed in a row; if any, the sandbox is probably dead. */
  readonly failures: number;
}

export interface LaneLimits {
  /** The most concurrent expiries. */
  readonly maxExpiries: number;
  /** The most of them on one host. */
  readonly maxExpiriesPerHost: number;
}

/** Sandboxes whose last expiry failed get one in this many of all places. */
const FAILED_PART = 4;

/** Limits the concurrent expiries of one gateway, so that dead hosts and sandboxes do not delay the others. */
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

  /** Takes a place. Returns false when none is free for this sandbox. */
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
