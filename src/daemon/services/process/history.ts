import type { GapEvent, Offsets, OutputEvent, OutputStream, ProcessEvent, StartEvent } from './events.ts';
import type { HistoryBudget } from './history-budget.ts';

/** What a piece costs beside its bytes: many tiny ones must not pass for little memory. */
const PIECE_BYTES = 256;
/** Small pieces of one stream in a row are joined up to this length, so that little of the limit goes to the above. */
const JOINED_BYTES = 4096;

/** Bytes of one stream in a row, in a store that may have room for more. */
interface Piece {
  readonly stream: OutputStream;
  /** Bytes of the stream before it. */
  readonly offset: number;
  length: number;
  store: Buffer;
}

/** The last output of a process, for readers that come back: bounded in bytes, overhead included. */
export class History {
  readonly #pieces: Piece[] = [];
  readonly #limit: number;
  readonly #budget: HistoryBudget | null;
  #cost = 0;

  /** At most `limitBytes`, and with all others together no more than `budget` allows. */
  constructor(limitBytes: number, budget: HistoryBudget | null = null) {
    this.#limit = limitBytes;
    this.#budget = budget;
  }

  /** The memory that it takes, in bytes. */
  get cost(): number {
    return this.#cost;
  }

  /** Where the kept bytes of a stream begin, or null when there are none. */
  firstOffset(stream: OutputStream): number | null {
    return this.#pieces.find((piece) => piece.stream === stream)?.offset ?? null;
  }

  append({ stream, bytes, offset }: OutputEvent): void {
    const before = this.#cost;
    if (!this.#join(stream, bytes)) {
      this.#pieces.push({ stream, offset, length: bytes.length, store: bytes });
      this.#cost += bytes.length + PIECE_BYTES;
    }
    while (this.#cost > this.#limit) this.#dropFirst();
    this.#budget?.changed(this, this.#cost - before);
  }

  /** Gives up all that is kept. */
  clear(): void {
    const freed = this.#cost;
    this.#pieces.length = 0;
    this.#cost = 0;
    this.#budget?.cleared(this, freed);
  }

  /**
   * What a reader gets that comes back: the start with the offsets of what follows, a gap if some of what it asked
   * for is gone, and the kept bytes from the offsets on. `end` are the offsets reached.
   */
  resume(start: StartEvent, from: Offsets, end: Offsets): ProcessEvent[] {
    const begin = (stream: OutputStream) => Math.max(from[stream], this.firstOffset(stream) ?? end[stream]);
    const offsets = { stdout: begin('stdout'), stderr: begin('stderr'), pty: begin('pty') };
    const gone = offsets.stdout > from.stdout || offsets.stderr > from.stderr || offsets.pty > from.pty;
    const gap: GapEvent[] = gone ? [{ type: 'gap', from, to: offsets }] : [];
    const kept = this.#pieces.flatMap((piece) => tail(piece, offsets[piece.stream]));
    return [{ ...start, offsets }, ...gap, ...kept];
  }

  /** Behind the last piece, whose store grows by doubling; false when that is another stream's or long enough. */
  #join(stream: OutputStream, bytes: Buffer): boolean {
    const last = this.#pieces.at(-1);
    if (last?.stream !== stream) return false;
    const length = last.length + bytes.length;
    if (length > JOINED_BYTES) return false;
    if (length > last.store.length || last.store.length === last.length) this.#grow(last, length);
    last.store.set(bytes, last.length);
    last.length = length;
    return true;
  }

  /** A store of its own: the first one is the event's, which readers share. */
  #grow(piece: Piece, length: number): void {
    const store = Buffer.allocUnsafeSlow(Math.min(2 * length, JOINED_BYTES));
    store.set(piece.store.subarray(0, piece.length));
    this.#cost += store.length - piece.store.length;
    piece.store = store;
  }

  #dropFirst(): void {
    const first = this.#pieces.shift();
    if (first) this.#cost -= first.store.length + PIECE_BYTES;
  }
}

/** What of a piece lies at or behind `offset`. */
function tail({ stream, offset, length, store }: Piece, from: number): OutputEvent[] {
  const skip = Math.max(0, from - offset);
  if (skip >= length) return [];
  return [{ type: 'output', stream, offset: offset + skip, bytes: store.subarray(skip, length) }];
}
