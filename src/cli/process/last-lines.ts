import type { FollowEvent } from './follow.ts';

type Output = Extract<FollowEvent, { type: 'output' }>;

const LINE_FEED = 10;

/** Keeps the last lines of output, in the order in which it came. */
export class LastLines {
  readonly #most: number;
  #pieces: Output[] = [];
  #count = 0;

  constructor(most: number) {
    this.#most = most;
  }

  add(piece: Output): void {
    this.#pieces.push(piece);
    this.#count += linesIn(piece.data);
    for (let first = this.#pieces[0]; first; first = this.#pieces[0]) {
      const rest = this.#count - linesIn(first.data);
      if (rest <= this.#most) return;
      this.#pieces.shift();
      this.#count = rest;
    }
  }

  /** Returns the output that ends with the last lines. An incomplete line counts as one. */
  take(): Output[] {
    const taken: Output[] = [];
    const last = this.#pieces.at(-1)?.data.at(-1);
    let wanted = this.#most + (last === LINE_FEED ? 1 : 0);
    for (const piece of this.#pieces.toReversed()) {
      let at = piece.data.length;
      while (wanted > 0 && at > 0) if (piece.data[--at] === LINE_FEED) wanted--;
      const isFound = wanted === 0;
      taken.unshift({ ...piece, data: piece.data.subarray(isFound ? at + 1 : 0) });
      if (isFound) break;
    }
    return this.#most === 0 ? [] : taken;
  }
}

function linesIn(data: Uint8Array): number {
  return data.reduce((count, byte) => count + (byte === LINE_FEED ? 1 : 0), 0);
}
