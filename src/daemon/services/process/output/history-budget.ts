/** A history that can be cleared to free memory. */
export interface Clearable {
  clear(): void;
}

/** Bounds the memory of the histories of all processes: the least recently written one is cleared first. */
export class HistoryBudget {
  readonly #limit: number;
  /** In the order of their last write. */
  readonly #histories = new Set<Clearable>();
  #latest: Clearable | null = null;
  #used = 0;

  constructor(limitBytes: number) {
    this.#limit = limitBytes;
  }

  /** Memory of all histories, in bytes. */
  get used(): number {
    return this.#used;
  }

  /** Accounts for a write to `history` that took `bytes` more memory. */
  changed(history: Clearable, bytes: number): void {
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

  /** Accounts for `history`, cleared of `bytes`. */
  cleared(history: Clearable, bytes: number): void {
    this.#used -= bytes;
    this.#histories.delete(history);
    if (this.#latest === history) this.#latest = null;
  }
}
