import { monotonicMs } from './monotonic.ts';

/** Counts an operation and adds up its durations. */
export class Durations {
  count = 0;
  /** Sum of all durations, in seconds. */
  seconds = 0;
  lastSeconds = 0;

  /** Runs `work`; counts it if it succeeds. */
  async measure<T>(work: () => Promise<T>): Promise<T> {
    const started = monotonicMs();
    const result = await work();
    this.lastSeconds = (monotonicMs() - started) / 1000;
    this.seconds += this.lastSeconds;
    this.count++;
    return result;
  }
}

/** Number and total size of transfers. */
export class Transfers {
  count = 0;
  bytes = 0;
}
