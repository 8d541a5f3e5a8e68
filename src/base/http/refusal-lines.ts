import type { Logger } from 'pino';
import { monotonicMs } from '../monotonic.ts';

/** In each period, so many calls without a secret are logged; the others are counted. */
const MOST_LINES = 200;
const PERIOD_MS = 10_000;

/**
 * Limits the log lines about calls that no token or key stands behind. Such a call costs a stranger nothing, and many lines could fill
 * the disk.
 */
export class RefusalLines {
  readonly #logger: Logger;
  readonly #secret: string;
  #endsAt = 0;
  #left = MOST_LINES;
  #unlogged = 0;

  /** @param secret what such a call lacks, for the log */
  constructor(logger: Logger, secret: 'the token' | 'a key') {
    this.#logger = logger;
    this.#secret = secret;
  }

  /** Returns whether one more call may be logged. */
  take(): boolean {
    if (this.#left > 0) {
      this.#left--;
      return true;
    }
    this.#unlogged++;
    return false;
  }

  /** Must be called at the end of each call, of whomever: after a period, logs how many calls were not logged in it. */
  renew(): void {
    const now = monotonicMs();
    if (now < this.#endsAt) return;
    const unlogged = this.#unlogged;
    this.#endsAt = now + PERIOD_MS;
    this.#left = MOST_LINES;
    this.#unlogged = 0;
    if (unlogged > 0)
      this.#logger.warn(
        { calls: unlogged },
        `too many calls without ${this.#secret}: further ones were not logged`,
      );
  }
}
