/** What holds units until it is closed, such as a response. */
interface Closable {
  readonly destroyed: boolean;
  once(event: 'close', listener: () => void): unknown;
}

/** A limit on the number of units (bytes, for instance) in use at the same time. Nobody waits for units: who gets none is refused. */
export class Semaphore {
  readonly most: number;
  #taken = 0;

  constructor(most: number) {
    this.most = most;
  }

  /** The units in use. */
  get taken(): number {
    return this.#taken;
  }

  /** Takes `count` units; returns false and takes none when fewer are left. */
  take(count = 1): boolean {
    if (count > this.most - this.#taken) return false;
    this.#taken += count;
    return true;
  }

  release(count = 1): void {
    this.#taken -= count;
  }

  /** Takes `count` units until `holder` is closed; returns false and takes none when it is closed already, or fewer are left. */
  takeUntilClosed(holder: Closable, count = 1): boolean {
    if (holder.destroyed || !this.take(count)) return false;
    holder.once('close', () => this.release(count));
    return true;
  }
}
