import { EnvdError } from '../../../../base/errors.ts';

/** Takes the bytes of an archive in order. Methods that return a promise throw the source's errors. */
export class ByteSource {
  readonly #pieces: AsyncIterator<Buffer>;
  /** This has been received and not taken. */
  #piece: Buffer = Buffer.alloc(0);
  #received = 0;

  constructor(source: AsyncIterable<Buffer>) {
    this.#pieces = source[Symbol.asyncIterator]();
  }

  /** Returns how many bytes were taken. */
  get position(): number {
    return this.#received - this.#piece.length;
  }

  /** Takes exactly `length` bytes, which should be few. Throws `invalid_argument` when the source ends before. */
  async take(length: number): Promise<Buffer> {
    const pieces = [this.#piece];
    for (let received = this.#piece.length; received < length; ) {
      const more = await this.#next();
      if (!more) throw this.#endedEarly();
      pieces.push(more);
      received += more.length;
    }
    if (pieces.length > 1) this.#piece = Buffer.concat(pieces);
    return this.#takeReceived(length);
  }

  /** Takes between 1 and `most` bytes. Throws as `take` does. */
  async takeSome(most: number): Promise<Buffer> {
    if (this.#piece.length === 0) {
      const more = await this.#next();
      if (!more) throw this.#endedEarly();
      this.#piece = more;
    }
    return this.#takeReceived(Math.min(most, this.#piece.length));
  }

  /** Skips bytes. Throws as `take` does. */
  async skip(length: number): Promise<void> {
    for (let left = length; left > 0; ) left -= (await this.takeSome(left)).length;
  }

  /** Takes all that is left. */
  async drain(): Promise<void> {
    this.#piece = Buffer.alloc(0);
    while (await this.#next());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#pieces.return?.();
  }

  #takeReceived(length: number): Buffer {
    const taken = this.#piece.subarray(0, length);
    this.#piece = this.#piece.subarray(length);
    return taken;
  }

  /** Returns the next piece that is not empty, or null at the end. */
  async #next(): Promise<Buffer | null> {
    for (;;) {
      const { value, done } = await this.#pieces.next();
      if (done) return null;
      this.#received += value.length;
      if (value.length > 0) return value;
    }
  }

  #endedEarly(): EnvdError {
    return new EnvdError('invalid_argument', `archive ends early, after ${this.#received} bytes`);
  }
}
