import { EventEmitter } from 'node:events';

/** The bytes of a block of lines. The oldest block is dropped as a whole. */
const BLOCK_BYTES = 16 * 1024;
/** About how much memory a block takes besides its bytes. */
const OVERHEAD_BYTES = 256;
/** The most bytes of lines in a batch, without the ids. A longer line is dropped. */
const BATCH_BYTES = 256 * 1024;

interface Block {
  /** The buffer is cut to what is used when no more lines are added. */
  bytes: Buffer;
  used: number;
  lines: number;
  /** The members that each line gets, see `take`; null when they were not known yet when the lines were written. */
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
 * Keeps log lines that wait for the collector, the oldest first. They are outside of V8's heap, whose collections would copy
 * what may wait for hours. A full queue drops the oldest lines; a queue with the limit 0 keeps nothing and counts nothing.
 * Emits `line` after each line that was added.
 */
export class LogQueue extends EventEmitter<{ line: [] }> {
  readonly counts = { sent: 0, refused: 0, dropped: 0 } satisfies LineCounts;
  readonly #blocks: Block[] = [];
  /** The last block, while lines can be added to it. */
  #open: Block | null = null;
  /** How many blocks are in the batch that was taken. They are the first ones, and must not be dropped. */
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
    return this.#blocks.length === 0;
  }

  get hasBatch(): boolean {
    return this.#bytes >= BATCH_BYTES;
  }

  set limit(bytes: number) {
    this.#limit = bytes;
    if (bytes === 0) this.#clear();
    else this.#dropOldest();
  }

  /** Adds a line, which is a JSON object with at least one member, and ends with a newline. */
  write(line: string): void {
    if (this.#limit === 0 || this.#isQuiet) return;
    const length = Buffer.byteLength(line);
    if (length > BATCH_BYTES) {
      this.counts.dropped++;
      return;
    }
    const block = this.#blockFor(length);
    block.used += block.bytes.write(line, block.used);
    block.lines++;
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
    this.#close();
    for (const block of this.#blocks) block.ids ??= ids;
  }

  /**
   * Takes a batch of the oldest lines; returns them as a JSON array. They stay in the queue until `settle` is called. Lines
   * that have no ids get `ids`: members as JSON text, each with a comma after it.
   */
  take(ids: string): string {
    this.#close();
    let bytes = 0;
    for (const { used } of this.#blocks) {
      bytes += used;
      if (bytes > BATCH_BYTES) break;
      this.#taken++;
    }
    const batch = this.#blocks.slice(0, this.#taken);
    return `[${batch.map((block) => membersOf(block, block.ids ?? ids)).join(',\n')}]\n`;
  }

  /** Ends the batch: removes its lines, or keeps them for the next batch. */
  settle(outcome: 'sent' | 'refused' | 'kept'): void {
    const taken = this.#taken;
    this.#taken = 0;
    if (outcome === 'kept') this.#dropOldest();
    else {
      for (const block of this.#blocks.splice(0, taken)) {
        this.#bytes -= sizeOf(block);
        this.counts[outcome] += block.lines;
      }
    }
  }

  #blockFor(length: number): Block {
    if (this.#open && this.#open.used + length <= this.#open.bytes.length) return this.#open;
    this.#close();
    const bytes = Buffer.allocUnsafeSlow(Math.max(BLOCK_BYTES, length));
    const block = { bytes, used: 0, lines: 0, ids: null };
    this.#blocks.push(block);
    this.#bytes += sizeOf(block);
    this.#open = block;
    return block;
  }

  #close(): void {
    const block = this.#open;
    this.#open = null;
    if (block === null || block.used === block.bytes.length) return;
    const bytes = Buffer.allocUnsafeSlow(block.used);
    block.bytes.copy(bytes, 0, 0, block.used);
    this.#bytes -= block.bytes.length - bytes.length;
    block.bytes = bytes;
  }

  #dropOldest(): void {
    while (this.#bytes > this.#limit && this.#blocks.length > this.#taken + 1) {
      for (const block of this.#blocks.splice(this.#taken, 1)) {
        this.#bytes -= sizeOf(block);
        this.counts.dropped += block.lines;
      }
    }
  }

  /** Drops all lines except for the batch that was taken. */
  #clear(): void {
    this.#blocks.splice(this.#taken);
    this.#open = null;
    this.#bytes = this.#blocks.reduce((sum, block) => sum + sizeOf(block), 0);
  }
}

function sizeOf({ bytes }: Block): number {
  return bytes.length + OVERHEAD_BYTES;
}

/** Returns the lines as members of an array. JSON escapes newlines in strings, so each newline here is between two lines. */
function membersOf({ bytes, used }: Block, ids: string): string {
  const lines = bytes.toString('utf8', 1, used - 1).split('\n{');
  return `{${ids}${lines.join(`,\n{${ids}`)}`;
}
