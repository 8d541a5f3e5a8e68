/** A bucket is full again after, in ms. */
const FULL_MS = 1000;
/** The most names of one second; beyond, earlier ones are forgotten. */
const MOST = 50_000;

/** The refusal of a request beyond a limit of the caller's own. */
export interface TooMany {
  readonly code: 429;
  readonly message: string;
  /** When to come again, in whole seconds. */
  readonly retryAfter: number;
}

export function tooMany(message: string, retryAfter = 1): TooMany {
  return { code: 429, message: `${message}: try again later`, retryAfter };
}

/**
 * Limits requests a second by name, as a bucket that holds those of one second and fills evenly. Of each name one time is
 * kept: when its bucket is full again (the generic cell rate algorithm of ITU-T I.371).
 */
export class Rate {
  readonly #limit: number | null;
  #fullAt = new Map<string, number>();
  /** Of the second before; all buckets of earlier ones are full. */
  #earlier = new Map<string, number>();
  #begunAt = Number.NEGATIVE_INFINITY;

  /** @param limit requests a second; null: they are not limited */
  constructor(limit: number | null) {
    this.#limit = limit;
  }

  get isLimited(): boolean {
    return this.#limit !== null;
  }

  /**
   * Takes a request, and returns null; the refusal of one that is beyond the limit, which is not taken.
   *
   * @param now in ms, by the steady clock
   */
  take(name: string, now = performance.now()): TooMany | null {
    if (this.#limit === null) return null;
    this.#forget(now);
    const known = this.#fullAt.get(name) ?? this.#earlier.get(name) ?? 0;
    const fullAt = Math.max(known, now) + FULL_MS / this.#limit;
    const early = fullAt - now - FULL_MS;
    // Sums of fractions are not exact.
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
