import { isFair } from '../access/shares.ts';

/** A sandbox that is waiting for its expiry. */
export interface Waiting {
  readonly id: string;
  /** The machine that the sandbox runs on, as far as it is known. */
  readonly host: string;
  /** The client that owns the sandbox; null if the platform does. */
  readonly owner: string | null;
  /** So many expiries in a row have failed. If there are any, the sandbox is probably dead. */
  readonly failures: number;
}

export interface LaneLimits {
  /** At most this many expiries run at the same time. */
  readonly maxExpiries: number;
  /** At most this many of them run on one host. */
  readonly maxExpiriesPerHost: number;
}

/** Sandboxes whose last expiry failed may use the places divided by this number, in all and on each host. */
const FAILED_PART = 4;

/** Limits the concurrent expiries of one gateway, so that dead hosts and sandboxes and their owners do not delay others. */
export class ExpiryLanes {
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
    if (this.has(waiting.id)) return false;
    if (!this.#hasRoom(waiting, maxExpiries, () => true)) return false;
    if (!this.#hasRoom(waiting, maxExpiriesPerHost, ({ host }) => host === waiting.host)) return false;
    if (waiting.failures > 0 && !this.#hasRoomForFailed(waiting)) return false;
    this.#taken.set(waiting.id, waiting);
    return true;
  }

  release(id: string): void {
    this.#taken.delete(id);
  }

  #hasRoomForFailed(waiting: Waiting): boolean {
    const { maxExpiries, maxExpiriesPerHost } = this.#limits;
    const onHost = ({ host, failures }: Waiting) => failures > 0 && host === waiting.host;
    return (
      this.#hasRoom(waiting, partOf(maxExpiries), ({ failures }) => failures > 0) &&
      this.#hasRoom(waiting, partOf(maxExpiriesPerHost), onHost)
    );
  }

  /** Returns whether `owner` may have one more of `most` places. `isOne` says which taken places count among them. */
  #hasRoom({ owner }: Waiting, most: number, isOne: (taken: Waiting) => boolean): boolean {
    let [taken, own] = [0, 0];
    for (const each of this.#taken.values()) {
      if (!isOne(each)) continue;
      taken++;
      if (owner !== null && each.owner === owner) own++;
    }
    return isFair(own, taken, most);
  }
}

function partOf(places: number): number {
  return Math.max(1, Math.floor(places / FAILED_PART));
}
