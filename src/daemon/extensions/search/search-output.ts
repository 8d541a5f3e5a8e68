import type { Readable } from 'node:stream';
import { EnvdError } from '../../../base/errors.ts';

/** The longest line: lines of context, each of at most 1,000 characters, and a path. */
const MAX_LINE_BYTES = 8 * 1024 * 1024;
const NEWLINE = 0x0a;

/** Reads lines, and bytes behind them. What is not read waits in the pipe. */
export class SearchOutput {
  readonly #chunks: AsyncIterator<Buffer>;
  #rest: Buffer = Buffer.alloc(0);

  constructor(stream: Readable) {
    this.#chunks = stream.iterator({ destroyOnReturn: false });
  }

  /** The next line and all others that are here already, at most `most`; none at the end. */
  async lines(most: number): Promise<string[]> {
    const first = await this.line();
    if (first === null) return [];
    const lines = [first];
    for (
      let end = this.#rest.indexOf(NEWLINE);
      end >= 0 && lines.length < most;
      end = this.#rest.indexOf(NEWLINE)
    )
      lines.push(this.#take(end + 1).toString('utf8', 0, end));
    return lines;
  }

  /** Null at the end. */
  async line(): Promise<string | null> {
    const pieces: Buffer[] = [];
    for (let length = 0; ; ) {
      const end = this.#rest.indexOf(NEWLINE);
      if (end >= 0) return Buffer.concat([...pieces, this.#take(end + 1).subarray(0, end)]).toString();
      pieces.push(this.#take(this.#rest.length));
      length += pieces.at(-1)?.length ?? 0;
      if (length > MAX_LINE_BYTES)
        throw new EnvdError('internal', 'a search has written a line that is too long');
      if (!(await this.#more())) return null;
    }
  }

  /** The next `length` bytes, in pieces; fewer at the end. */
  async *bytes(length: number): AsyncGenerator<Buffer> {
    for (let left = length; left > 0; ) {
      if (this.#rest.length === 0 && !(await this.#more())) return;
      const piece = this.#take(Math.min(left, this.#rest.length));
      left -= piece.length;
      yield piece;
    }
  }

  #take(length: number): Buffer {
    const taken = this.#rest.subarray(0, length);
    this.#rest = this.#rest.subarray(length);
    return taken;
  }

  async #more(): Promise<boolean> {
    try {
      const { value, done } = await this.#chunks.next();
      if (!done) this.#rest = value;
      return !done;
    } catch {
      // The stream was destroyed.
      return false;
    }
  }
}
