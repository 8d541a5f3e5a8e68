import { monotonicMs } from '../../base/monotonic.ts';

/** An empty bucket is full again after this time, in ms. */
const FULL_MS = 1000;
/** If more names than this come within one second, earlier ones are forgotten. */
const MOST = 50_000;

/** A refusal of a caller that has reached a limit of its own. */
export interface TooMany {
  readonly code: 429;
  readonly message: string;
  /** The caller may try again after this time, in whole seconds. */
  readonly retryAfter: number;
}

/** Returns a refusal. Adds the advice to `message`. `retryAfter` is in seconds. */
export function tooMany(message: string, retryAfter = 1): TooMany {
  return { code: 429, message: `${message}: try again later`, retryAfter };
}

/**
 * Limits requests per second by name. Each name has a bucket that holds the requests of one second and fills evenly. Of each
 * bucket, only the time is kept at which it is full again (the generic cell rate algorithm of ITU-T I.371).
 */
export class Rate {
  readonly #limit: number | null;
  #fullAt = new Map<string, number>();
  /** The names of the previous second. The buckets of all earlier names are full. */
  #earlier = new Map<string, number>();
  #begunAt = Number.NEGATIVE_INFINITY;

  /** @param limit requests per second; null means no limit */
  constructor(limit: number | null) {
    this.#limit = limit;
  }

  /**
   * Admits a request and returns null, or returns a refusal. A refused request does not count.
   * @param now the time by `monotonicMs()`
   */
  take(name: string, now = monotonicMs()): TooMany | null {
    if (this.#limit === null) return null;
    this.#forget(now);
    const known = this.#fullAt.get(name) ?? this.#earlier.get(name) ?? 0;
    const fullAt = Math.max(known, now) + FULL_MS / this.#limit;
    const early = fullAt - now - FULL_MS;
    // The comparison has a tolerance, because sums of fractions have rounding errors.
    if (early > 1e-6) {
      const message = `'${name}' has had ${this.#limit} requests within a second, the most that it may have`;
      return tooMany(message, Math.ceil(early / 1000));
    }
    this.#fullAt.set(name, fullAt);
    return null;
  }

  #forget(now: number): void {
    if (now - this.#begunAt < FULL_MS && this.#fullAt.size < MOST) return;
    this.#earlier = this.#fullAt;
    this.#fullAt = new Map();
    this.#begunAt = now;
  }
}
