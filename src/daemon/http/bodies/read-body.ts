import type { IncomingMessage } from 'node:http';
import { freeBuffer } from '../../../base/buffers.ts';
import { EnvdError } from '../../../base/errors.ts';
import type { CallScope } from '../admission/call-scope.ts';

/**
 * Reads the whole body. The bytes of a large one count for `call`. Throws what `tooLong` makes when the body is larger than `limit`
 * bytes, `aborted` when the client disconnects, and the reason when the call is aborted.
 */
export async function readBody(
  call: CallScope,
  limit: number,
  tooLong: (limit: number) => Error,
): Promise<Buffer> {
  const { request } = call;
  call.askForBody();
  const { promise, resolve, reject } = call.pending<void>();
  const body = new GrowingBody(request);
  request.on('data', (piece: Buffer) => {
    if (body.length + piece.length > limit) return reject(tooLong(limit));
    const before = body.capacity;
    body.add(piece);
    if (body.capacity !== before) call.hold(body.capacity);
  });
  request.on('end', resolve);
  request.on('error', (cause) => reject(new EnvdError('aborted', 'client disconnected', { cause })));
  try {
    await promise;
    return body.take();
  } catch (error) {
    request.removeAllListeners('data').resume();
    body.free();
    throw error;
  }
}

/** A body that arrives in pieces. They are copied into one buffer, because many small pieces would take far more memory. */
class GrowingBody {
  length = 0;
  readonly #announced: number;
  #bytes: Buffer = Buffer.alloc(0);

  constructor({ headers }: IncomingMessage) {
    this.#announced = Number(headers['content-length'] ?? 0);
  }

  /** The bytes of memory that it takes. */
  get capacity(): number {
    return this.#bytes.length;
  }

  /** Returns the bytes, and forgets them: the listeners of the request stay for as long as its stream, and keep this. */
  take(): Buffer {
    const bytes = this.#bytes.subarray(0, this.length);
    this.#bytes = Buffer.alloc(0);
    return bytes;
  }

  add(piece: Buffer): void {
    const length = this.length + piece.length;
    // Most bodies have one piece, which is not copied.
    if (this.length === 0) this.#bytes = piece;
    else {
      if (length > this.#bytes.length) this.#grow(length);
      piece.copy(this.#bytes, this.length);
      freeBuffer(piece);
    }
    this.length = length;
  }

  free(): void {
    freeBuffer(this.#bytes);
  }

  /** Doubles the memory, but takes no more than the client has announced. */
  #grow(length: number): void {
    const doubled = Math.max(length, 2 * this.#bytes.length);
    const isEnough = this.#announced >= length && this.#announced < doubled;
    const larger = Buffer.allocUnsafeSlow(isEnough ? this.#announced : doubled);
    this.#bytes.copy(larger, 0, 0, this.length);
    this.free();
    this.#bytes = larger;
  }
}
