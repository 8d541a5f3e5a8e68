import type { OpenFile } from '../../linux/files/open-file.ts';

/** A ring that cannot grow any more is used further if it has at least this many bytes. */
const LEAST_BYTES = 64 * 1024;

/** Describes a ring for the next program. Offsets count the bytes of the stream. */
export interface RingState {
  /** The ring begins at this position of the file. */
  readonly base: number;
  readonly capacity: number;
  /** The offset of the first byte that is kept, and the one after the last byte. */
  readonly from: number;
  readonly to: number;
}

/** A ring has this many numbers that change: its capacity, `from` and `to`. */
export const NUMBERS = 3;

/** Keeps the last bytes of a stream in a part of a file, which is written from its start again when it is full. */
export class Ring {
  readonly #file: OpenFile;
  readonly #base: number;
  #numbers: Float64Array;

  /** `numbers` may be in memory that outlives the program, because they describe the file at every moment. */
  constructor(
    file: OpenFile,
    { base, capacity, from, to }: RingState,
    numbers: Float64Array = new Float64Array(NUMBERS),
  ) {
    this.#file = file;
    this.#base = base;
    this.#numbers = numbers;
    numbers.set([capacity, from, to]);
  }

  /** Returns the offset of the first byte that is kept, which is the number of those that were dropped. */
  get from(): number {
    return this.#numbers[1] ?? 0;
  }

  /** Returns the offset after the last byte that was written. */
  get to(): number {
    return this.#numbers[2] ?? 0;
  }

  get state(): RingState {
    return { base: this.#base, capacity: this.#capacity, from: this.from, to: this.to };
  }

  /** Leaves the memory of its numbers as it is from now on. */
  detach(): void {
    this.#numbers = Float64Array.from(this.#numbers);
  }

  /**
   * Writes what is not written yet of `bytes`, which begin at `offset`. So it can be called again after an error. If bytes
   * before `offset` are missing, the ring starts anew. Throws write(2)'s errors.
   */
  async write(bytes: Buffer, offset: number): Promise<void> {
    const end = offset + bytes.length;
    if (Math.max(offset, end - this.#capacity) > this.to)
      this.#startAt(Math.max(offset, end - this.#capacity));
    while (this.to < end) {
      const at = this.to % this.#capacity;
      const part = bytes.subarray(this.to - offset).subarray(0, this.#capacity - at);
      // A reader of these bytes sees that they are gone before they are overwritten, and so does a program after a crash.
      this.#setFrom(Math.max(this.from, this.to + part.length - this.#capacity));
      const count = await this.#file.writev([part], this.#base + at);
      this.#setTo(this.to + count);
    }
  }

  /**
   * Makes the best of a full disk: the ring takes no more space than it has, and so drops the oldest bytes, or drops all
   * bytes before `end` if it has too little space. A ring that has been written in a circle has all its space.
   */
  stopGrowing(end: number): void {
    if (this.to >= LEAST_BYTES && this.to < this.#capacity) this.#numbers[0] = this.to;
    else this.#startAt(end);
  }

  /** Reads at most `length` bytes at `offset`, fewer at the end of the ring. Returns null if they were dropped meanwhile. */
  async read(offset: number, length: number): Promise<Buffer | null> {
    const at = offset % this.#capacity;
    const buffer = Buffer.allocUnsafeSlow(Math.min(length, this.to - offset, this.#capacity - at));
    const count = await this.#file.read(buffer, buffer.length, this.#base + at);
    return offset < this.from || count === 0 ? null : buffer.subarray(0, count);
  }

  get #capacity(): number {
    return this.#numbers[0] ?? 0;
  }

  /** In the order that `afterCrash` expects. */
  #startAt(offset: number): void {
    this.#setFrom(offset);
    this.#setTo(offset);
  }

  #setFrom(offset: number): void {
    this.#numbers[1] = offset;
  }

  #setTo(offset: number): void {
    this.#numbers[2] = offset;
  }
}
