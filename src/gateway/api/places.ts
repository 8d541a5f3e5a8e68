import { HttpError } from '../../base/errors.ts';
import { tooMany } from '../access/rates.ts';
import { isFair } from '../access/shares.ts';

export interface PlaceLimits {
  /** At most this many calls are served at the same time. */
  readonly most: number;
  /** At most this many wait for a place. */
  readonly mostWaiting: number;
  /** A call waits for at most this time, in ms. */
  readonly waitMs: number;
  /** A refusal begins with this text. */
  readonly refusal: string;
}

interface Waiting {
  readonly owner: string | null;
  readonly begin: () => void;
}

/** Must be called once, when the call no longer needs its place. */
export type Leave = () => void;

/**
 * Shares places out among owners. A call that finds none waits for its turn: the owner that has the fewest places is served
 * first, and the calls of one owner in their order. A caller without an owner is the platform, which has no share.
 */
export class Places {
  readonly #limits: PlaceLimits;
  /** The owners of the calls that have a place. */
  readonly #taken: (string | null)[] = [];
  readonly #waiting: Waiting[] = [];

  constructor(limits: PlaceLimits) {
    this.#limits = limits;
  }

  /**
   * Resolves when the call has a place. Throws an error with the status 429 when too many calls wait or the wait is too long,
   * and the reason of `signal` when that aborts.
   */
  async take(owner: string | null, signal: AbortSignal): Promise<Leave> {
    const { mostWaiting, waitMs } = this.#limits;
    signal.throwIfAborted();
    if (!this.#canBegin(owner)) {
      const waiting = this.#waiting.filter((each) => each.owner === owner).length;
      if (!isFair(owner === null ? 0 : waiting, this.#waiting.length, mostWaiting)) throw this.#refuse();
      await this.#wait(owner, AbortSignal.any([signal, AbortSignal.timeout(waitMs)]));
      // The place was taken in the name of this call.
      if (signal.aborted) this.#leave(owner);
      signal.throwIfAborted();
    } else this.#taken.push(owner);
    let isLeft = false;
    return () => {
      if (!isLeft) this.#leave(owner);
      isLeft = true;
    };
  }

  #canBegin(owner: string | null): boolean {
    return isFair(owner === null ? 0 : countOf(this.#taken, owner), this.#taken.length, this.#limits.most);
  }

  #wait(owner: string | null, signal: AbortSignal): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const waiting: Waiting = { owner, begin: resolve };
    const give = () => {
      const index = this.#waiting.indexOf(waiting);
      if (index < 0) return;
      this.#waiting.splice(index, 1);
      reject(isTimeout(signal.reason) ? this.#refuse() : signal.reason);
    };
    signal.addEventListener('abort', give, { once: true });
    this.#waiting.push(waiting);
    return promise.finally(() => signal.removeEventListener('abort', give));
  }

  #leave(owner: string | null): void {
    this.#taken.splice(this.#taken.indexOf(owner), 1);
    for (let next = this.#next(); next; next = this.#next()) {
      this.#waiting.splice(this.#waiting.indexOf(next), 1);
      this.#taken.push(next.owner);
      next.begin();
    }
  }

  /** Returns the call whose turn it is, if there is a place for it. */
  #next(): Waiting | undefined {
    const owners = [...new Set(this.#waiting.map(({ owner }) => owner))].filter((owner) =>
      this.#canBegin(owner),
    );
    const [first] = owners.toSorted((a, b) => countOf(this.#taken, a) - countOf(this.#taken, b));
    return first === undefined ? undefined : this.#waiting.find(({ owner }) => owner === first);
  }

  #refuse(): HttpError {
    const { code, message } = tooMany(
      `${this.#limits.refusal}: ${this.#taken.length} have a place, and ${this.#waiting.length} wait`,
    );
    return new HttpError(code, message);
  }
}

function countOf(owners: readonly (string | null)[], owner: string | null): number {
  return owners.filter((each) => each === owner).length;
}

function isTimeout(reason: unknown): boolean {
  return reason instanceof Error && reason.name === 'TimeoutError';
}
