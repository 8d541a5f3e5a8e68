/** What is kept while output is held, in characters; what comes then is dropped, and counted. */
const LIMIT = 1024 * 1024;

/** Writes lines at once, but keeps them while it is held: for when writing would have to wait. */
export class HeldOutput {
  readonly #write: (lines: string) => void;
  #held = false;
  #kept = '';
  #dropped = 0;

  constructor(write: (lines: string) => void) {
    this.#write = write;
  }

  /** `line` with its end. */
  write(line: string): void {
    if (!this.#held) this.#write(line);
    else if (this.#kept.length + line.length <= LIMIT) this.#kept += line;
    else this.#dropped++;
  }

  /** Writes nothing until `release`. */
  hold(): void {
    this.#held = true;
  }

  /** Writes what was kept; returns the number of lines that were dropped. */
  release(): number {
    const [kept, dropped] = [this.#kept, this.#dropped];
    this.#held = false;
    this.#kept = '';
    this.#dropped = 0;
    if (kept !== '') this.#write(kept);
    return dropped;
  }
}
