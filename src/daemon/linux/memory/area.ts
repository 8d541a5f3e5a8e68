/** Allocates pieces of equal size from a range of memory. */
export class Area {
  readonly start: number;
  readonly size: number;
  readonly count: number;
  readonly end: number;
  /** Freed pieces below `#fresh`. From `#fresh` on, no piece has been used yet. */
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

  /** The bytes that are or were in use. */
  get touchedBytes(): number {
    return this.#fresh - this.start;
  }

  /**
   * Takes a piece; returns null when all are in use. When the piece was never used before, `mark` is called with the end of
   * all pieces that were ever used.
   */
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

  /** Treats free pieces at the end as never used; returns the end of the rest. From then on lower pieces are taken first. */
  shrink(): number {
    const free = new Set(this.#free);
    while (this.#fresh > this.start && free.delete(this.#fresh - this.size)) this.#fresh -= this.size;
    this.#free = [...free].sort((a, b) => b - a);
    return this.#fresh;
  }
}
