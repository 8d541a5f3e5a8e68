import type { GapEvent, Offsets, OutputEvent, OutputStream, ProcessEvent, StartEvent } from './events.ts';
import type { HistoryBudget } from './history-budget.ts';

/** Overhead of a piece, in bytes, so that many tiny pieces count for the memory that they take. */
const PIECE_BYTES = 256;
/** Consecutive small pieces of one stream are joined up to this length, in bytes, to save overhead. */
const JOINED_BYTES = 4096;

/** Consecutive bytes of one stream, in a store that may be larger. */
interface Piece {
  readonly stream: OutputStream;
  /** Offset of the first byte in the stream. */
  readonly offset: number;
  length: number;
  store: Buffer;
}

/** The last output of a process, for readers that reconnect; bounded in bytes, including overhead. */
export class History {
  readonly #pieces: Piece[] = [];
  readonly #limit: number;
  readonly #budget: HistoryBudget | null;
  #cost = 0;

  /** At most `limitBytes`; `budget` bounds all histories together. */
  constructor(limitBytes: number, budget: HistoryBudget | null = null) {
    this.#limit = limitBytes;
    this.#budget = budget;
  }

  /** Memory in use, in bytes. */
  get cost(): number {
    return this.#cost;
  }

  /** Offset of the first kept byte of a stream, or null when none is kept. */
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

  /** Drops everything. */
  clear(): void {
    const freed = this.#cost;
    this.#pieces.length = 0;
    this.#cost = 0;
    this.#budget?.cleared(this, freed);
  }

  /**
   * The events for a reader that resumes at `from`: the start event with the offsets of the following output, a gap
   * event if requested bytes are no longer kept, and the kept output. `end`: the offsets reached so far.
   */
  resume(start: StartEvent, from: Offsets, end: Offsets): ProcessEvent[] {
    const begin = (stream: OutputStream) => Math.max(from[stream], this.firstOffset(stream) ?? end[stream]);
    const offsets = { stdout: begin('stdout'), stderr: begin('stderr'), pty: begin('pty') };
    const gone = offsets.stdout > from.stdout || offsets.stderr > from.stderr || offsets.pty > from.pty;
    const gap: GapEvent[] = gone ? [{ type: 'gap', from, to: offsets }] : [];
    const kept = this.#pieces.flatMap((piece) => tail(piece, offsets[piece.stream]));
    return [{ ...start, offsets }, ...gap, ...kept];
  }

  /** Appends to the last piece; false when that is of another stream or would become too long. Doubles the store. */
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

  /** Replaces the store: the first one is the buffer of the event, which readers share. */
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

/** The part of a piece from offset `from` on. */
function tail({ stream, offset, length, store }: Piece, from: number): OutputEvent[] {
  const skip = Math.max(0, from - offset);
  if (skip >= length) return [];
  return [{ type: 'output', stream, offset: offset + skip, bytes: store.subarray(skip, length) }];
}
