/** An archive consists of blocks of this many bytes. */
export const BLOCK = 512;

/** A multiple of BLOCK, so that no header is divided. */
const CHUNK = 256 * 1024;

/** Collects an archive in chunks of equal size, each of which owns its memory. */
export class BlockWriter {
  #chunk = Buffer.allocUnsafeSlow(CHUNK);
  #used = 0;
  #full: Buffer[] = [];

  /** Returns the next block, filled with zeros, to be filled at once. The length so far must be a multiple of BLOCK. */
  block(): Buffer {
    const block = this.room().subarray(0, BLOCK).fill(0);
    this.advance(BLOCK);
    return block;
  }

  bytes(bytes: Uint8Array): void {
    for (let at = 0; at < bytes.length; ) {
      const room = this.room();
      const length = Math.min(room.length, bytes.length - at);
      room.set(length === bytes.length ? bytes : bytes.subarray(at, at + length));
      this.advance(length);
      at += length;
    }
  }

  /** Appends at most `length` zeros, and only as many as fit into the chunk. Returns how many. */
  zeros(length: number): number {
    const room = this.room();
    const count = Math.min(room.length, length);
    room.fill(0, 0, count);
    this.advance(count);
    return count;
  }

  /** Appends zeros up to a multiple of BLOCK. */
  pad(): void {
    const over = this.#used % BLOCK;
    if (over > 0) this.zeros(BLOCK - over);
  }

  /** Returns the unused part of the current chunk, which is never empty. `advance` says how much of it was filled. */
  room(): Buffer {
    return this.#chunk.subarray(this.#used);
  }

  advance(length: number): void {
    this.#used += length;
    if (this.#used < CHUNK) return;
    this.#full.push(this.#chunk);
    this.#chunk = Buffer.allocUnsafeSlow(CHUNK);
    this.#used = 0;
  }

  get isFull(): boolean {
    return this.#full.length > 0;
  }

  /** Takes the chunks that are full. */
  takeFull(): readonly Buffer[] {
    const full = this.#full;
    if (full.length > 0) this.#full = [];
    return full;
  }

  /** Takes the last chunk, which is not full. */
  takeRest(): Buffer {
    return this.#chunk.subarray(0, this.#used);
  }
}
