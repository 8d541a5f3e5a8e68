import type { ServerResponse } from 'node:http';

/** Room for the frames of a usual batch in either codec; what does not fit gets memory of its own. */
const ROOM_BYTES = 272 * 1024;
/** Bytes from which on a frame goes out from where it lies, instead of being joined to its neighbours. */
const REFERENCE_BYTES = 8 * 1024;
/** Batches kept for the next use: one is enough while sockets take what they are given. */
const SPARE_LIMIT = 4;
const spare: FrameBatch[] = [];

/**
 * Frames that go out in one write: small ones joined, large ones as they are. Its memory is used again as soon as
 * the kernel has taken the bytes, so that a stream at full speed leaves nothing to collect.
 */
export class FrameBatch {
  readonly #room = Buffer.allocUnsafeSlow(ROOM_BYTES);
  #parts: Uint8Array[] = [];
  /** Where the joined frames that are no part yet begin, and where they end. */
  #begin = 0;
  #end = 0;

  private constructor() {}

  /** An empty batch; sending it hands it back. */
  static take(): FrameBatch {
    return spare.pop() ?? new FrameBatch();
  }

  /** Uninitialised memory behind what is there already, to be filled before the batch is sent. */
  allocate(length: number): Buffer {
    if (length > ROOM_BYTES - this.#end) {
      const own = Buffer.allocUnsafe(length);
      this.#reference(own);
      return own;
    }
    const begin = this.#end;
    this.#end += length;
    return this.#room.subarray(begin, this.#end);
  }

  /** Adds bytes that nobody changes any more. */
  add(bytes: Uint8Array): void {
    if (bytes.length >= REFERENCE_BYTES) this.#reference(bytes);
    else this.allocate(bytes.length).set(bytes);
  }

  /** Writes everything at once. Returns null when the kernel has taken it already, else what settles when it has. */
  send(response: ServerResponse): Promise<void> | null {
    this.#join();
    const { promise, resolve } = Promise.withResolvers<void>();
    const last = this.#parts.pop() ?? Buffer.alloc(0);
    response.cork();
    for (const part of this.#parts) response.write(part);
    // Called in any case, also when the client has gone.
    response.write(last, () => {
      this.#handBack();
      resolve();
    });
    response.uncork();
    return response.writableLength === 0 ? null : promise;
  }

  #reference(bytes: Uint8Array): void {
    this.#join();
    this.#parts.push(bytes);
  }

  #join(): void {
    if (this.#end > this.#begin) this.#parts.push(this.#room.subarray(this.#begin, this.#end));
    this.#begin = this.#end;
  }

  #handBack(): void {
    this.#parts = [];
    this.#begin = 0;
    this.#end = 0;
    if (spare.length < SPARE_LIMIT) spare.push(this);
  }
}
