import { monotonicMs } from '../../../base/monotonic.ts';

/** In each period, so many calls without the token are logged; the others are counted. */
const MOST_LINES = 200;
const PERIOD_MS = 10_000;

/** Limits the log lines about calls without the token. Such a call costs a stranger nothing, and many lines could fill the disk. */
export class RefusalLines {
  #endsAt = 0;
  #left = MOST_LINES;
  #unlogged = 0;

  /** Returns whether one more call may be logged. */
  take(): boolean {
    if (this.#left > 0) {
      this.#left--;
      return true;
    }
    this.#unlogged++;
    return false;
  }

  /** Returns the number of calls that were not logged in the period that has just ended; 0 while a period lasts. */
  renew(): number {
    const now = monotonicMs();
    if (now < this.#endsAt) return 0;
    const unlogged = this.#unlogged;
    this.#endsAt = now + PERIOD_MS;
    this.#left = MOST_LINES;
    this.#unlogged = 0;
    return unlogged;
  }
}
