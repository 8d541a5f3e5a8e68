import { Transform, type TransformCallback } from 'node:stream';
import { finished } from 'node:stream/promises';
import { PooledDigest } from '../../../os/digest.ts';
import { type AnnouncedDigest, assertDigest } from './digests.ts';

/** Taken in at once, in bytes: a trip to the thread pool for each. */
const BATCH = 256 * 1024;

/** Hands a body on as it is, and compares it with its digests when it has ended. */
export class DigestCheck extends Transform {
  readonly #digests: ReadonlyMap<AnnouncedDigest, PooledDigest>;
  #batch: Buffer[] = [];
  #bytes = 0;

  constructor(digests: readonly AnnouncedDigest[]) {
    super({ highWaterMark: BATCH });
    this.#digests = new Map(digests.map((digest) => [digest, new PooledDigest(digest.algorithm)]));
  }

  override _transform(piece: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    this.#batch.push(piece);
    this.#bytes += piece.length;
    if (this.#bytes < BATCH) done();
    else this.#takeIn().then(() => done(), done);
  }

  override _flush(done: TransformCallback): void {
    this.#takeIn().then(() => done(), done);
  }

  /** The pieces are handed on when they have been taken in: who gets them gives their memory back. */
  async #takeIn(): Promise<void> {
    const batch = this.#batch;
    this.#batch = [];
    this.#bytes = 0;
    await Promise.all(Array.from(this.#digests.values(), (digest) => digest.update(batch)));
    for (const piece of batch) this.push(piece);
  }

  /**
   * Takes in what nobody has read: the epilogue of a multipart body, or what follows the end of gzip.
   * Throws `invalid_argument` when the body is another than was announced, and what the stream was destroyed with.
   */
  async verify(): Promise<void> {
    this.unpipe();
    this.resume();
    await finished(this);
    for (const [digest, arrived] of this.#digests) assertDigest(digest, arrived.finish());
  }
}
