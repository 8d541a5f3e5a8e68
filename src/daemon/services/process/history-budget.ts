/** What can be given up to make room. */
export interface Kept {
  clear(): void;
}

/** Bounds what the histories of all processes keep together: the one that has been silent longest is given up first. */
export class HistoryBudget {
  readonly #limit: number;
  /** In the order in which they were last written to. */
  readonly #histories = new Set<Kept>();
  #latest: Kept | null = null;
  #used = 0;

  constructor(limitBytes: number) {
    this.#limit = limitBytes;
  }

  /** What they take together, in bytes. */
  get used(): number {
    return this.#used;
  }

  /** `history` has been written to and takes so many bytes more. */
  changed(history: Kept, bytes: number): void {
    this.#used += bytes;
    if (this.#latest !== history) {
      this.#histories.delete(history);
      this.#histories.add(history);
      this.#latest = history;
    }
    for (const silent of this.#histories) {
      if (this.#used <= this.#limit || silent === history) return;
      silent.clear();
    }
  }

  /** `history` has given up all that it had. */
  cleared(history: Kept, bytes: number): void {
    this.#used -= bytes;
    this.#histories.delete(history);
    if (this.#latest === history) this.#latest = null;
  }
}
