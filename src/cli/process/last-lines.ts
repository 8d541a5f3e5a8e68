import type { FollowEvent } from './follow.ts';

type Output = Extract<FollowEvent, { type: 'output' }>;
type Gap = Extract<FollowEvent, { type: 'gap' }>;

const LINE_FEED = 10;
/** A process may write a line that has no end, faster than it can be shown. */
const MOST_BYTES = 64 * 1024 * 1024;
/** A piece takes about this many bytes besides its data. */
const PIECE_BYTES = 256;

/** Keeps the last lines of output, in the order in which it came, and at most 64 MiB of them. */
export class LastLines {
  readonly #most: number;
  #pieces: Output[] = [];
  #count = 0;
  #bytes = 0;
  #isCut = false;

  constructor(most: number) {
    this.#most = most;
  }

  add(piece: Output): void {
    this.#pieces.push(piece);
    this.#count += linesIn(piece.data);
    this.#bytes += bytesOf(piece);
    for (let first = this.#pieces[0]; first; first = this.#pieces[0]) {
      const rest = this.#count - linesIn(first.data);
      const isWanted = rest <= this.#most;
      if (isWanted && this.#bytes <= MOST_BYTES) return;
      this.#isCut ||= isWanted;
      this.#pieces.shift();
      this.#count = rest;
      this.#bytes -= bytesOf(first);
    }
  }

  /** Returns the output that ends with the last lines, behind a gap if not all of them were kept. An incomplete line counts as one. */
  take(): (Output | Gap)[] {
    if (this.#most === 0) return [];
    const taken: (Output | Gap)[] = [];
    const last = this.#pieces.at(-1)?.data.at(-1);
    let wanted = this.#most + (last === LINE_FEED ? 1 : 0);
    for (const piece of this.#pieces.toReversed()) {
      let at = piece.data.length;
      while (wanted > 0 && at > 0) if (piece.data[--at] === LINE_FEED) wanted--;
      const isFound = wanted === 0;
      taken.push({ ...piece, data: piece.data.subarray(isFound ? at + 1 : 0) });
      if (isFound) break;
    }
    if (wanted > 0 && this.#isCut) taken.push({ type: 'gap', bytes: null });
    return taken.reverse();
  }
}

function linesIn(data: Uint8Array): number {
  let count = 0;
  for (let at = data.indexOf(LINE_FEED); at !== -1; at = data.indexOf(LINE_FEED, at + 1)) count++;
  return count;
}

function bytesOf({ data }: Output): number {
  return data.length + PIECE_BYTES;
}
