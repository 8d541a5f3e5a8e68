/** What is kept while output is held, in characters; what comes then is dropped, and counted. */
const LIMIT = 1024 * 1024;
/** Lines go out together with those that come within this time, in ms: a write costs more than a line does. */
const TOGETHER_MS = 20;

/** Writes lines, one at once and many together, but keeps them while it is held: for when writing would have to wait. */
export class HeldOutput {
  readonly #write: (lines: string) => void;
  #held = false;
  #kept = '';
  #dropped = 0;
  #next: NodeJS.Timeout | null = null;

  constructor(write: (lines: string) => void) {
    this.#write = write;
  }

  /** `line` with its end. */
  write(line: string): void {
    if (this.#kept.length + line.length <= LIMIT) this.#kept += line;
    else this.#dropped++;
    if (this.#next === null) this.flush();
  }

  /** Writes nothing until `release`. */
  hold(): void {
    this.#held = true;
  }

  /** Writes what was kept; returns the number of lines that were dropped. */
  release(): number {
    const dropped = this.#dropped;
    this.#held = false;
    this.#dropped = 0;
    this.flush();
    return dropped;
  }

  /** Writes what waits for more, unless it is held. */
  flush(): void {
    if (this.#held || this.#kept === '') return;
    const lines = this.#kept;
    this.#kept = '';
    this.#write(lines);
    this.#next ??= setTimeout(() => {
      this.#next = null;
      this.flush();
    }, TOGETHER_MS);
  }
}
