import { monotonicMs } from '../../base/monotonic.ts';

/** The time in which an empty bucket fills, in ms. */
const FULL_MS = 1000;
/** The most names in one second; beyond that, earlier ones are forgotten. */
const MOST = 50_000;

/** A refusal: the caller is over its own rate limit. */
export interface TooMany {
  readonly code: 429;
  readonly message: string;
  /** When to retry, in whole seconds. */
  readonly retryAfter: number;
}

export function tooMany(message: string, retryAfter = 1): TooMany {
  return { code: 429, message: `${message}: try again later`, retryAfter };
}

/**
 * Limits requests per second by name, with a bucket that holds one second's worth and fills evenly. For each name one
 * number is kept: when its bucket is full again (the generic cell rate algorithm of ITU-T I.371).
 */
export class Rate {
  readonly #limit: number | null;
  #fullAt = new Map<string, number>();
  /** The names of the second before; the buckets of all earlier ones are full. */
  #earlier = new Map<string, number>();
  #begunAt = Number.NEGATIVE_INFINITY;

  /** @param limit requests per second; null: unlimited */
  constructor(limit: number | null) {
    this.#limit = limit;
  }

  get isLimited(): boolean {
    return this.#limit !== null;
  }

  /**
   * Admits a request and returns null, or returns its refusal; a refused request does not count.
   * @param now in ms, by the steady clock
   */
  take(name: string, now = monotonicMs()): TooMany | null {
    if (this.#limit === null) return null;
    this.#forget(now);
    const known = this.#fullAt.get(name) ?? this.#earlier.get(name) ?? 0;
    const fullAt = Math.max(known, now) + FULL_MS / this.#limit;
    const early = fullAt - now - FULL_MS;
    // Sums of fractions have rounding errors.
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
