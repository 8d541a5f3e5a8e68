/** What an owner may have. A member that is absent has no limit. */
export interface OwnerQuota {
  /** Sandboxes at a time, paused ones included. */
  readonly sandboxes?: number;
  /** Creations a minute. */
  readonly creates?: number;
  /** The longest time to live that may be asked for, in seconds. */
  readonly timeout?: number;
  /** Processors of one sandbox. */
  readonly cpu?: number;
  /** Memory of one sandbox, in MiB. */
  readonly memory?: number;
}

const NAMES: readonly string[] = ['sandboxes', 'creates', 'timeout', 'cpu', 'memory'];
/** A sandbox may end at any time, so one who has too many may try again after this time, in seconds. */
const SANDBOX_RETRY_S = 5;

/** Reads words such as `sandboxes=20`. Returns null if one is malformed or repeated. */
export function readQuota(words: readonly string[]): OwnerQuota | null {
  const pairs = words.map((word) => /^([a-z]+)=(\d{1,9})$/.exec(word));
  const names = pairs.map((pair) => pair?.[1] ?? '');
  if (words.length === 0 || new Set(names).size < names.length) return null;
  if (!names.every((name) => NAMES.includes(name))) return null;
  const quota = Object.fromEntries(pairs.map((pair, index) => [names[index], Number(pair?.[2])]));
  // A rate or a size of 0 would mean nothing; `sandboxes=0` lets an owner create none.
  return pairs.some((pair) => pair?.[1] !== 'sandboxes' && Number(pair?.[2]) === 0) ? null : quota;
}

/** An owner has reached a quota, and may try again later. */
export class QuotaReached extends Error {
  override readonly name = 'QuotaReached';
  readonly statusCode = 429;
  /** In whole seconds. */
  readonly retryAfter: number;

  private constructor(message: string, retryAfter: number) {
    super(message);
    this.retryAfter = retryAfter;
  }

  static sandboxes(owner: string, most: number): QuotaReached {
    const message = `client '${owner}' has ${most} sandboxes, the most that it may have (quota sandboxes): remove one first`;
    return new QuotaReached(message, SANDBOX_RETRY_S);
  }

  /** @param waitMs the next creation is possible after this time */
  static creates(owner: string, most: number, waitMs: number): QuotaReached {
    const seconds = Math.max(1, Math.ceil(waitMs / 1000));
    const message = `client '${owner}' has created ${most} sandboxes within a minute, the most that it may (quota creates): try again in ${seconds} s`;
    return new QuotaReached(message, seconds);
  }
}

/** An owner's creations fill a bucket that is empty again after this time, in ms. */
const MINUTE_MS = 60_000;

/**
 * Counts a creation (the generic cell rate algorithm of ITU-T I.371). Returns the time at which the bucket is empty again, or the
 * time to wait if it is full.
 * @param emptyAt the time at which the bucket is empty, in Unix ms
 */
export function takeCreate(
  emptyAt: number,
  creates: number,
  now: number,
): { emptyAt: number } | { waitMs: number } {
  const next = Math.max(emptyAt, now) + MINUTE_MS / creates;
  // The comparison has a tolerance, because sums of fractions have rounding errors.
  return next - now > MINUTE_MS + 1e-3 ? { waitMs: next - now - MINUTE_MS } : { emptyAt: next };
}
