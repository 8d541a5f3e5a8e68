import type { Readable } from 'node:stream';
import { EnvdError } from '../../../base/errors.ts';

/** A line may have this many bytes, which is enough for a path and lines of context, each of at most 1,000 characters. */
const MAX_LINE_BYTES = 8 * 1024 * 1024;
const NEWLINE = 0x0a;

/** Reads lines, and the bytes behind them. Unread output waits in the pipe. */
export class SearchOutput {
  readonly #chunks: AsyncIterator<Buffer>;
  #rest: Buffer = Buffer.alloc(0);

  constructor(stream: Readable) {
    this.#chunks = stream.iterator({ destroyOnReturn: false });
  }

  /** Returns the next line and further lines that have already arrived, but at most `most`. Returns none at the end. */
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

  /** Returns the next line, or null at the end. */
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

  /** Yields the next `length` bytes in pieces. There are fewer if the output ends before. */
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
