import { monotonicMs } from './monotonic.ts';

/** Counts the runs of an operation and adds up their durations. */
export class Durations {
  count = 0;
  /** The sum of all durations, in seconds. */
  seconds = 0;
  lastSeconds = 0;

  /** Runs `work`, and counts it if it succeeds. */
  async measure<T>(work: () => Promise<T>): Promise<T> {
    const started = monotonicMs();
    const result = await work();
    this.lastSeconds = (monotonicMs() - started) / 1000;
    this.seconds += this.lastSeconds;
    this.count++;
    return result;
  }
}

/** Counts transfers and their bytes. */
export class Transfers {
  count = 0;
  bytes = 0;
}
