import type { ServerResponse } from 'node:http';

/**
 * Room for the frames of a batch in either codec, even if all of them are small; what does not fit gets memory of its
 * own. Only as much as was once filled is resident.
 */
const ROOM_BYTES = 1088 * 1024;
/** Bytes from which on a part goes out from where it lies, instead of being joined to its neighbours. */
const REFERENCE_BYTES = 8 * 1024;
/** Batches kept for the next use: few are on their way while sockets take what they are given. */
const SPARE_LIMIT = 4;

/** The batches of many streams, whose memory is used again. */
export class FrameBatches {
  readonly #spare: FrameBatch[] = [];

  /** An empty batch. It belongs to those who hold it or have sent it, until the last of them is done. */
  take(): FrameBatch {
    return this.#spare.pop() ?? new FrameBatch((batch) => this.#keep(batch));
  }

  /** Lets go of the memory that is kept for the next use, and of what was sent from it. */
  clear(): void {
    this.#spare.length = 0;
  }

  #keep(batch: FrameBatch): void {
    if (this.#spare.length < SPARE_LIMIT) this.#spare.push(batch);
  }
}

/**
 * Frames that go out in one write, to one reader or to many: small ones joined, large ones as they are. Its memory is
 * used again as soon as the kernel has taken the bytes, so that a stream at full speed leaves nothing to collect.
 */
export class FrameBatch {
  readonly #room = Buffer.allocUnsafeSlow(ROOM_BYTES);
  #parts: Uint8Array[] = [];
  /** Where the joined frames that are no part yet begin, and where they end. */
  #begin = 0;
  #end = 0;
  #holders = 0;
  readonly #onDone: (batch: FrameBatch) => void;

  /** Made by `FrameBatches.take`. */
  constructor(onDone: (batch: FrameBatch) => void) {
    this.#onDone = onDone;
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
    this.hold();
    const { promise, resolve } = Promise.withResolvers<void>();
    let taken = false;
    const onTaken = () => {
      if (taken) return;
      taken = true;
      this.release();
      resolve();
    };
    response.cork();
    this.#parts.forEach((part, index) => {
      if (index < this.#parts.length - 1) response.write(part);
      // Node may never call it when the client has gone: then the batch is not used again, and garbage.
      else response.write(part, onTaken);
    });
    response.uncork();
    if (response.writableLength > 0) return promise;
    // The callback comes only when the microtasks have run out, many batches later.
    onTaken();
    return null;
  }

  /** Keeps the frames until `release`. */
  hold(): void {
    this.#holders += 1;
  }

  release(): void {
    this.#holders -= 1;
    if (this.#holders > 0) return;
    this.#parts = [];
    this.#begin = 0;
    this.#end = 0;
    this.#onDone(this);
  }

  #reference(bytes: Uint8Array): void {
    this.#join();
    this.#parts.push(bytes);
  }

  #join(): void {
    if (this.#end > this.#begin) this.#parts.push(this.#room.subarray(this.#begin, this.#end));
    this.#begin = this.#end;
  }
}
