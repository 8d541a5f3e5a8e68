/** The newest bytes of a stream, in a buffer that does not grow. */
export class NewestOutput {
  readonly #ring: Buffer;
  #end = 0;

  constructor(most: number) {
    this.#ring = Buffer.alloc(most);
  }

  /** The number of bytes that have come. */
  get end(): number {
    return this.#end;
  }

  /** The offset of the first byte that is kept. */
  get begin(): number {
    return Math.max(0, this.#end - this.#ring.length);
  }

  add(piece: Uint8Array): void {
    const size = this.#ring.length;
    const kept = piece.subarray(Math.max(0, piece.length - size));
    const at = (this.#end + piece.length - kept.length) % size;
    this.#ring.set(kept.subarray(0, size - at), at);
    this.#ring.set(kept.subarray(size - at), 0);
    this.#end += piece.length;
  }

  /** Returns a copy of at most `most` bytes that are kept, from an offset on. */
  read(from: number, most: number): Buffer {
    const size = this.#ring.length;
    const length = Math.min(most, this.#end - from);
    const at = from % size;
    const first = this.#ring.subarray(at, at + length);
    return Buffer.concat([first, this.#ring.subarray(0, length - first.length)]);
  }
}
