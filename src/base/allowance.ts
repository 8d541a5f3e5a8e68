/** A number of things that may be taken at a time, all takers together. */
export class Allowance {
  #left: number;

  constructor(most: number) {
    this.#left = most;
  }

  /** False, with nothing taken, when there are not so many left. */
  take(count: number): boolean {
    if (count > this.#left) return false;
    this.#left -= count;
    return true;
  }

  giveBack(count: number): void {
    this.#left += count;
  }
}
