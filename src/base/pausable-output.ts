/** So many characters are buffered; further lines are dropped and counted. */
const LIMIT = 1024 * 1024;
/** After a write, lines are collected for this time and written together, because few writes use less CPU. */
const BATCH_INTERVAL_MS = 20;

/** Writes lines in batches. It can be held while writes would block; it then keeps lines in a buffer. */
export class PausableOutput {
  readonly #write: (lines: string) => void;
  #held = false;
  #buffered = '';
  #dropped = 0;
  #lost = 0;
  #timer: NodeJS.Timeout | null = null;

  constructor(write: (lines: string) => void) {
    this.#write = write;
  }

  /** The number of lines that were lost. */
  get lost(): number {
    return this.#lost;
  }

  /** Counts lines that the destination has dropped. */
  lose(lines: string): void {
    this.#lost += lines.split('\n').length - 1;
  }

  /** Writes a line, or keeps it for the next write. `line` includes its newline. */
  write(line: string): void {
    if (this.#buffered.length + line.length <= LIMIT) this.#buffered += line;
    else {
      this.#dropped++;
      this.#lost++;
    }
    if (this.#timer === null) this.flush();
  }

  /** Keeps lines in the buffer until `release`. */
  hold(): void {
    this.#held = true;
  }

  /** Writes the buffered lines. Returns the number of lines that were dropped since the last release. */
  release(): number {
    const dropped = this.#dropped;
    this.#held = false;
    this.#dropped = 0;
    this.flush();
    return dropped;
  }

  /** Writes the buffered lines now, unless held. */
  flush(): void {
    if (this.#held || this.#buffered === '') return;
    const lines = this.#buffered;
    this.#buffered = '';
    this.#write(lines);
    this.#timer ??= setTimeout(this.#expire, BATCH_INTERVAL_MS);
  }

  readonly #expire = (): void => {
    this.#timer = null;
    this.flush();
  };
}
