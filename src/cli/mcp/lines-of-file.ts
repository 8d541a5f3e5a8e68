import { isUtf8 } from 'node:buffer';
import { Failure } from '../output/failure.ts';
import { counted } from '../output/formats.ts';
import { wholeCharacters } from './answer.ts';

interface Wanted {
  /** The first line, from 1 on. */
  readonly first: number;
  readonly lines: number;
  /** So many bytes of the first line are left out. */
  readonly skip: number;
  /** The result has at most so many bytes. */
  readonly most: number;
}

const LINE_FEED = 10;

/** Takes lines from the content of a file, which comes in pieces. It keeps only what is wanted. */
export class LinesOfFile {
  readonly #wanted: Wanted;
  readonly #taken: Buffer;
  #length = 0;
  /** The line that the next byte belongs to. */
  #line = 1;
  #skipped = 0;
  /** The line has begun, and its end has not come. */
  #isOpen = false;
  /** Why nothing more is wanted. */
  #end: 'lines' | 'room' | null = null;

  constructor(wanted: Wanted) {
    this.#wanted = wanted;
    this.#taken = Buffer.alloc(wanted.most);
  }

  /** Takes what is wanted of a piece. Returns whether nothing more is wanted. */
  take(piece: Buffer): boolean {
    const { first, lines, most } = this.#wanted;
    for (let rest = piece; rest.length > 0; ) {
      if (this.#line >= first + lines) this.#end = 'lines';
      else if (this.#length === most) this.#end = 'room';
      if (this.#end) return true;
      const end = rest.indexOf(LINE_FEED) + 1;
      const line = end === 0 ? rest : rest.subarray(0, end);
      const used = this.#line < first ? line.length : this.#add(line);
      this.#isOpen = end === 0 || used < line.length;
      if (!this.#isOpen) this.#line++;
      rest = rest.subarray(used);
    }
    return false;
  }

  /** Adds what has room of a line, or of a part of it. Returns how many bytes were used. */
  #add(line: Buffer): number {
    const { first, skip, most } = this.#wanted;
    const left = this.#line === first ? Math.min(line.length, skip - this.#skipped) : 0;
    this.#skipped += left;
    const taken = line.subarray(left, left + most - this.#length);
    this.#taken.set(taken, this.#length);
    this.#length += taken.length;
    return left + taken.length;
  }

  /** Returns the lines, and what is to be said of them. Throws a `Failure` if they are not UTF-8. */
  result(): { readonly text: string; readonly words: string } {
    const bytes = this.#whole();
    if (!isUtf8(bytes) || bytes.includes(0))
      throw new Failure('failed', 'the file is not text in UTF-8 there: read it by a command, such as xxd');
    return { text: bytes.toString(), words: this.#words(bytes) };
  }

  /** Returns what was taken, without a line at the end that is not whole. If there is no other line, returns a part of it. */
  #whole(): Buffer {
    const bytes = this.#taken.subarray(0, this.#length);
    if (this.#end !== 'room') return bytes;
    const lastFeed = bytes.lastIndexOf(LINE_FEED);
    return lastFeed < 0 ? wholeCharacters(bytes) : bytes.subarray(0, lastFeed + 1);
  }

  #words(bytes: Buffer): string {
    const { first, skip } = this.#wanted;
    const isWhole = bytes.length === 0 || bytes.at(-1) === LINE_FEED;
    if (this.#end === 'room' && !isWhole)
      return `A part of line ${first}. The line goes on: from_line ${first} and skip_bytes ${skip + bytes.length} give the rest.`;
    if (this.#end !== null) {
      const next = first + bytes.toString('latin1').split('\n').length - 1;
      return `Lines ${first} to ${next - 1}. The file goes on: from_line ${next} gives the rest.`;
    }
    const count = this.#isOpen ? this.#line : this.#line - 1;
    if (count < first) return `The file has ${counted(count, 'line')}.`;
    return `Lines ${first} to ${count}, the last one of the file.`;
  }
}
