/** How often something was done, and how long it took. */
export class Durations {
  count = 0;
  /** All together, in seconds. */
  seconds = 0;
  lastSeconds = 0;

  /** Counts `work` when it has succeeded. */
  async measure<T>(work: () => Promise<T>): Promise<T> {
    const started = performance.now();
    const result = await work();
    this.lastSeconds = (performance.now() - started) / 1000;
    this.seconds += this.lastSeconds;
    this.count++;
    return result;
  }
}

/** How often something was transferred, and how much in all. */
export class Transfers {
  count = 0;
  bytes = 0;
}
