/** A limit on the number of units (bytes, for instance) in use at the same time. */
export class Allowance {
  #left: number;

  constructor(most: number) {
    this.#left = most;
  }

  /** Takes `count` units; returns false and takes none when fewer are left. */
  take(count: number): boolean {
    if (count > this.#left) return false;
    this.#left -= count;
    return true;
  }

  release(count: number): void {
    this.#left += count;
  }
}
