/** Consecutive pieces of a memory, of equal size. */
export class Area {
  readonly start: number;
  readonly size: number;
  readonly count: number;
  readonly end: number;
  /** Freed pieces below `#fresh`, from which on none has been used. */
  #free: number[] = [];
  #fresh: number;
  #used = 0;

  constructor(start: number, size: number, count: number) {
    this.start = start;
    this.size = size;
    this.count = count;
    this.end = start + size * count;
    this.#fresh = start;
  }

  get usedBytes(): number {
    return this.#used * this.size;
  }

  /** The bytes that have been used at some time. */
  get touchedBytes(): number {
    return this.#fresh - this.start;
  }

  /** Null when all are in use. `mark` is called first with the end of all pieces that have been used, if that is new. */
  take(mark: (end: number) => void): number | null {
    const piece = this.#free.pop() ?? (this.#fresh < this.end ? this.#fresh : null);
    if (piece === this.#fresh) {
      this.#fresh += this.size;
      mark(this.#fresh);
    }
    if (piece !== null) this.#used += 1;
    return piece;
  }

  release(piece: number): void {
    this.#used -= 1;
    this.#free.push(piece);
  }

  /** Counts unused pieces at the end as never used; returns the end of the others. Lower pieces are taken first then. */
  shrink(): number {
    const free = new Set(this.#free);
    while (this.#fresh > this.start && free.delete(this.#fresh - this.size)) this.#fresh -= this.size;
    this.#free = [...free].sort((a, b) => b - a);
    return this.#fresh;
  }
}
