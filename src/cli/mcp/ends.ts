import type { Quoted } from './answer.ts';
import { NewestOutput } from './newest-output.ts';

/** The first and the last bytes of a stream. */
export class Ends {
  readonly #first: Buffer;
  readonly #last: NewestOutput;
  #length = 0;

  constructor(most: number) {
    this.#first = Buffer.alloc(Math.floor(most / 2));
    this.#last = new NewestOutput(this.#first.length);
  }

  add(piece: Uint8Array): void {
    const first = piece.subarray(0, this.#first.length - this.#length);
    this.#first.set(first, this.#length);
    this.#length += first.length;
    this.#last.add(piece.subarray(first.length));
  }

  /** Returns the parts with their names, and how many bytes are between them. */
  parts(name: string): { readonly quoted: readonly Quoted[]; readonly left: number } {
    const { begin, end } = this.#last;
    const first = this.#first.subarray(0, this.#length);
    const last = this.#last.read(begin, end);
    if (begin === 0) {
      const text = Buffer.concat([first, last]).toString();
      return { quoted: text === '' ? [] : [{ name, text }], left: 0 };
    }
    const all = first.length + end;
    return {
      quoted: [
        { name: `the first ${first.length} of ${all} bytes of ${name}`, text: first.toString() },
        { name: `the last ${last.length} of ${all} bytes of ${name}`, text: last.toString() },
      ],
      left: begin,
    };
  }
}
