import { createHash, type Hash } from 'node:crypto';
import { Transform, type TransformCallback } from 'node:stream';
import { finished } from 'node:stream/promises';
import { type AnnouncedDigest, assertDigest } from './digests.ts';

/** Hands a body on as it is, and compares it with its digests when it has ended. */
export class DigestCheck extends Transform {
  readonly #digests: ReadonlyMap<AnnouncedDigest, Hash>;

  constructor(digests: readonly AnnouncedDigest[]) {
    super();
    this.#digests = new Map(digests.map((digest) => [digest, createHash(digest.algorithm)]));
  }

  override _transform(piece: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    for (const hash of this.#digests.values()) hash.update(piece);
    done(null, piece);
  }

  /**
   * Takes in what nobody has read: the epilogue of a multipart body, or what follows the end of gzip.
   * Throws `invalid_argument` when the body is another than was announced, and what the stream was destroyed with.
   */
  async verify(): Promise<void> {
    this.unpipe();
    this.resume();
    await finished(this);
    for (const [digest, arrived] of this.#digests) assertDigest(digest, arrived);
  }
}
