import type { ServerResponse } from 'node:http';

/**
 * The buffer of a batch has room for a full batch of small frames in either codec. Frames that do not fit are allocated
 * separately. Unused pages of the buffer take no memory.
 */
const BUFFER_BYTES = 1088 * 1024;
/** Parts of at least this size are written without being copied into the buffer. */
const REFERENCE_BYTES = 8 * 1024;
/** A pool keeps at most this many batches, because few are usually being sent at a time. */
const SPARE_LIMIT = 4;

/** Where frames are written. */
export interface FrameSink {
  /** Appends `length` uninitialised bytes, to be filled before anything else is done with the sink. */
  allocate(length: number): Buffer;
  /** Appends bytes, which must not change afterwards. */
  add(bytes: Uint8Array): void;
}

/**
 * Frames that are written together, to one or several readers. Small frames are copied into a buffer, large ones are referenced.
 * The buffer is reused when the kernel has taken the bytes, so that streams produce no garbage.
 */
export class FrameBatch implements FrameSink {
  readonly #buffer = Buffer.allocUnsafeSlow(BUFFER_BYTES);
  #parts: Uint8Array[] = [];
  /** This range of the buffer was filled, but is not in `#parts` yet. */
  #begin = 0;
  #end = 0;
  #holders = 0;
  readonly #pool: FrameBatch[];

  private constructor(pool: FrameBatch[]) {
    this.#pool = pool;
  }

  /** Takes an empty batch from a pool. The batch returns there after its last `release` and its last `send`. */
  static take(pool: FrameBatch[]): FrameBatch {
    return pool.pop() ?? new FrameBatch(pool);
  }

  /** Appends and returns `length` uninitialized bytes, which the caller fills before it sends the batch. */
  allocate(length: number): Buffer {
    if (length > BUFFER_BYTES - this.#end) {
      const own = Buffer.allocUnsafe(length);
      this.#reference(own);
      return own;
    }
    const begin = this.#end;
    this.#end += length;
    return this.#buffer.subarray(begin, this.#end);
  }

  /** Appends bytes, which must not change afterwards. */
  add(bytes: Uint8Array): void {
    if (bytes.length >= REFERENCE_BYTES) this.#reference(bytes);
    else this.allocate(bytes.length).set(bytes);
  }

  /**
   * Writes all frames, and ends the response if `isLast`. Returns null if the kernel has taken the bytes already, and otherwise a
   * promise that resolves when it has.
   */
  send(response: ServerResponse, isLast = false): Promise<void> | null {
    this.#join();
    this.hold();
    let waiting: PromiseWithResolvers<void> | null = null;
    let taken = false;
    const onTaken = () => {
      if (taken) return;
      taken = true;
      this.release();
      waiting?.resolve();
    };
    response.cork();
    this.#parts.forEach((part, index) => {
      if (index < this.#parts.length - 1) response.write(part);
      // After a disconnect, Node may never call back. The batch is then garbage-collected instead of reused.
      else response.write(part, onTaken);
    });
    if (isLast) response.end();
    response.uncork();
    if (response.writableLength > 0) {
      waiting = Promise.withResolvers<void>();
      return waiting.promise;
    }
    // Node calls back only after all microtasks, which may send many batches before.
    onTaken();
    return null;
  }

  /** Keeps the frames until the matching `release`. */
  hold(): void {
    this.#holders += 1;
  }

  release(): void {
    this.#holders -= 1;
    if (this.#holders > 0) return;
    this.#parts = [];
    this.#begin = 0;
    this.#end = 0;
    if (this.#pool.length < SPARE_LIMIT) this.#pool.push(this);
  }

  #reference(bytes: Uint8Array): void {
    this.#join();
    this.#parts.push(bytes);
  }

  #join(): void {
    if (this.#end > this.#begin) this.#parts.push(this.#buffer.subarray(this.#begin, this.#end));
    this.#begin = this.#end;
  }
}
