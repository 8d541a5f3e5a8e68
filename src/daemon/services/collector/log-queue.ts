import { EventEmitter } from 'node:events';

/** The most bytes of lines in a batch, without the ids. A longer line is dropped. */
const BATCH_BYTES = 256 * 1024;
/** About how much memory a line takes besides its bytes. */
const OVERHEAD_BYTES = 128;
/** A full queue drops lines of this many bytes together, because the removal of the first elements of an array moves all others. */
const DROPPED_BYTES = 16 * 1024;

interface Line {
  readonly text: string;
  readonly bytes: number;
  /** The members that it gets, see `take`; null when they were not known yet when it was written. */
  ids: string | null;
}

/** The number of lines for each outcome. */
export interface LineCounts {
  /** Lines that the collector has accepted. */
  readonly sent: number;
  /** Lines that the collector has refused for good. */
  readonly refused: number;
  /** Lines that were the oldest when the queue was full, and lines longer than a batch. */
  readonly dropped: number;
}

/**
 * Keeps log lines that wait for the collector, the oldest first. A full queue drops the oldest lines; a queue with the limit 0 keeps
 * nothing and counts nothing. Emits `line` after each line that was added.
 */
export class LogQueue extends EventEmitter<{ line: [] }> {
  readonly counts = { sent: 0, refused: 0, dropped: 0 } satisfies LineCounts;
  readonly #lines: Line[] = [];
  /** How many lines are in the batch that was taken. They are the first ones, and must not be dropped. */
  #taken = 0;
  #bytes = 0;
  #limit: number;
  #isQuiet = false;

  /** `limit` is in bytes: at least twice `BATCH_BYTES`, or 0. */
  constructor(limit: number) {
    super();
    this.#limit = limit;
  }

  get bytes(): number {
    return this.#bytes;
  }

  get isEmpty(): boolean {
    return this.#lines.length === 0;
  }

  get hasBatch(): boolean {
    return this.#bytes >= BATCH_BYTES;
  }

  set limit(bytes: number) {
    this.#limit = bytes;
    if (bytes === 0) this.#remove(this.#taken, this.#lines.length);
    else this.#dropOldest();
  }

  /** Adds a line, which is a JSON object with at least one member, and ends with a newline. */
  write(text: string): void {
    if (this.#limit === 0 || this.#isQuiet) return;
    const bytes = Buffer.byteLength(text) + OVERHEAD_BYTES;
    if (bytes > BATCH_BYTES) {
      this.counts.dropped++;
      return;
    }
    this.#lines.push({ text, bytes, ids: null });
    this.#bytes += bytes;
    this.#dropOldest();
    this.emit('line');
  }

  /** Calls `log`; lines that are written meanwhile are not added. */
  quietly(log: () => void): void {
    this.#isQuiet = true;
    try {
      log();
    } finally {
      this.#isQuiet = false;
    }
  }

  /** Gives these ids to all lines so far that have none. See `take`. */
  stamp(ids: string): void {
    for (const line of this.#lines) line.ids ??= ids;
  }

  /**
   * Takes a batch of the oldest lines; returns them as a JSON array. They stay in the queue until `settle` is called. Lines
   * that have no ids get `ids`: members as JSON text, each with a comma after it.
   */
  take(ids: string): string {
    let bytes = 0;
    const end = this.#lines.findIndex((line) => {
      bytes += line.bytes;
      return bytes > BATCH_BYTES;
    });
    const batch = end < 0 ? this.#lines : this.#lines.slice(0, end);
    this.#taken = batch.length;
    return `[${batch.map((line) => `{${line.ids ?? ids}${line.text.slice(1, -1)}`).join(',\n')}]\n`;
  }

  /** Ends the batch: removes its lines, or keeps them for the next batch. */
  settle(outcome: 'sent' | 'refused' | 'kept'): void {
    const taken = this.#taken;
    this.#taken = 0;
    if (outcome === 'kept') this.#dropOldest();
    else this.counts[outcome] += this.#remove(0, taken);
  }

  #dropOldest(): void {
    if (this.#bytes <= this.#limit) return;
    let end = this.#taken;
    for (
      let excess = this.#bytes - this.#limit + DROPPED_BYTES;
      excess > 0 && end < this.#lines.length - 1;
      end++
    )
      excess -= this.#lines[end]?.bytes ?? 0;
    this.counts.dropped += this.#remove(this.#taken, end);
  }

  /** Removes the lines from `start` to before `end`; returns how many they are. */
  #remove(start: number, end: number): number {
    const lines = this.#lines.splice(start, end - start);
    for (const { bytes } of lines) this.#bytes -= bytes;
    return lines.length;
  }
}
