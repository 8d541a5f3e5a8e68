import { Transform, type TransformCallback } from 'node:stream';
import { finished } from 'node:stream/promises';
import { EnvdError } from '../../../../base/errors.ts';
import { PooledDigest } from '../../../os/digest.ts';
import { DIGEST_ALGORITHMS, type DigestAlgorithm } from '../../../services/files/digest.ts';

/** A digest that a client has announced for the body it sends. */
export interface AnnouncedDigest {
  /** The header field, in lower case. */
  readonly field: string;
  readonly algorithm: DigestAlgorithm;
  readonly digest: Buffer;
}

type Headers = Readonly<Record<string, string | string[] | undefined>>;

/** Both are about the same bytes here: an upload sends a whole representation (RFC 9530, section 3). */
const FIELDS = ['content-digest', 'repr-digest'];

// A dictionary of structured fields (RFC 9651, section 3.2); parameters mean nothing here.
const PARAMETERS = /(?:; *[a-z*][\w.*-]*(?:=(?:"(?:[^"\\]|\\["\\])*"|[^\s",;]+))?)*/.source;
const DIGEST = new RegExp(`^([a-z*][a-z0-9_.*-]*)=:([A-Za-z0-9+/]*={0,2}):${PARAMETERS}$`);
const PREFERENCE = new RegExp(`^([a-z*][a-z0-9_.*-]*)=(10|[0-9])${PARAMETERS}$`);

/**
 * The digests that the headers of an upload announce, by algorithms we know: of the others RFC 9530 wants nothing
 * said. Throws `invalid_argument` for a field that cannot be read, rather than take what it was to protect.
 */
export function announcedDigests(headers: Headers): readonly AnnouncedDigest[] {
  return FIELDS.flatMap((field) => {
    const value = headers[field];
    return value === undefined ? [] : parseDigests(field, String(value));
  });
}

function parseDigests(field: string, value: string): AnnouncedDigest[] {
  // The last of a key that repeats counts.
  const digests = new Map<string, Buffer>();
  for (const member of membersOf(value)) {
    const [, algorithm, base64] = DIGEST.exec(member) ?? [];
    if (algorithm === undefined || base64 === undefined) {
      throw new EnvdError('invalid_argument', `${field} is malformed: '${value}'`);
    }
    digests.set(algorithm, Buffer.from(base64, 'base64'));
  }
  return DIGEST_ALGORITHMS.flatMap((algorithm) => {
    const digest = digests.get(algorithm);
    return digest ? [{ field, algorithm, digest }] : [];
  });
}

/** The algorithm that `Want-Repr-Digest` likes best of ours; null when it wants none, or cannot be read. */
export function wantedDigest(headers: Headers): DigestAlgorithm | null {
  const wish = headers['want-repr-digest'];
  if (wish === undefined) return null;
  const preferences = new Map<string, number>();
  for (const member of membersOf(String(wish))) {
    const [, algorithm, preference] = PREFERENCE.exec(member) ?? [];
    if (algorithm === undefined) return null;
    preferences.set(algorithm, Number(preference));
  }
  const preferenceOf = (algorithm: DigestAlgorithm) => preferences.get(algorithm) ?? 0;
  const [best] = DIGEST_ALGORITHMS.toSorted((a, b) => preferenceOf(b) - preferenceOf(a));
  return best && preferenceOf(best) > 0 ? best : null;
}

/** Throws `invalid_argument` when what arrived is not what was announced. */
function assertDigest({ field, algorithm, digest }: AnnouncedDigest, found: Buffer): void {
  if (found.equals(digest)) return;
  const [expected, actual] = [digest, found].map((bytes) => formatDigest(algorithm, bytes));
  throw new EnvdError('invalid_argument', `${field} announced '${expected}', what arrived has '${actual}'`);
}

/** As a header field has it. */
export function formatDigest(algorithm: DigestAlgorithm, digest: Buffer): string {
  return `${algorithm}=:${digest.toString('base64')}:`;
}

function membersOf(value: string): string[] {
  return value.trim() === '' ? [] : value.split(',').map((member) => member.trim());
}

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
