import { createHash, type Hash } from 'node:crypto';
import { Transform, type TransformCallback } from 'node:stream';
import { finished } from 'node:stream/promises';
import { EnvdError } from '../../../base/errors.ts';
import { DIGEST_ALGORITHMS, type DigestAlgorithm } from './file-digest.ts';

/** A digest that the client has sent for its body. */
export interface AnnouncedDigest {
  /** The header field, in lower case. */
  readonly field: string;
  readonly algorithm: DigestAlgorithm;
  readonly digest: Buffer;
}

type Headers = Readonly<Record<string, string | string[] | undefined>>;

/** Both fields mean the same here, because the content of an upload is a whole representation. Source: RFC 9530, section 3. */
const FIELDS = ['content-digest', 'repr-digest'];

// Each field is a dictionary of structured fields, whose parameters are ignored. Source: RFC 9651, section 3.2.
const PARAMETERS = /(?:; *[a-z*][\w.*-]*(?:=(?:"(?:[^"\\]|\\["\\])*"|[^\s",;]+))?)*/.source;
const DIGEST = new RegExp(`^([a-z*][a-z0-9_.*-]*)=:([A-Za-z0-9+/]*={0,2}):${PARAMETERS}$`);
const PREFERENCE = new RegExp(`^([a-z*][a-z0-9_.*-]*)=(10|[0-9])${PARAMETERS}$`);

/**
 * Returns the digests in the headers of an upload. Unknown algorithms are ignored. Throws `invalid_argument` for a malformed field,
 * because its body could not be verified. Source: RFC 9530.
 */
export function announcedDigests(headers: Headers): readonly AnnouncedDigest[] {
  return FIELDS.flatMap((field) => {
    const value = headers[field];
    return value === undefined ? [] : parseDigests(field, String(value));
  });
}

function parseDigests(field: string, value: string): AnnouncedDigest[] {
  // The last value counts if a key repeats.
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

/** Returns the supported algorithm that `Want-Repr-Digest` prefers; null when there is none or the field is malformed. */
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

/** Throws `invalid_argument` when the digest of the received body does not match. */
function assertDigest({ field, algorithm, digest }: AnnouncedDigest, found: Buffer): void {
  if (found.equals(digest)) return;
  const [expected, actual] = [digest, found].map((bytes) => formatDigest(algorithm, bytes));
  throw new EnvdError('invalid_argument', `${field} is '${expected}', but the received body has '${actual}'`);
}

/** Returns the digest in the syntax of the header fields. */
export function formatDigest(algorithm: DigestAlgorithm, digest: Buffer): string {
  return `${algorithm}=:${digest.toString('base64')}:`;
}

function membersOf(value: string): string[] {
  return value.trim() === '' ? [] : value.split(',').map((member) => member.trim());
}

/**
 * Passes a body through unchanged, and verifies its digests at the end. It hashes on the event loop, because the pieces are as small
 * as they were read from the connection.
 */
export class DigestCheck extends Transform {
  readonly #hashes: ReadonlyMap<AnnouncedDigest, Hash>;

  constructor(digests: readonly AnnouncedDigest[]) {
    super();
    this.#hashes = new Map(digests.map((digest) => [digest, createHash(digest.algorithm)]));
  }

  override _transform(piece: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    // The hash comes first, because the reader frees the piece's memory.
    for (const hash of this.#hashes.values()) hash.update(piece);
    done(null, piece);
  }

  /**
   * Reads the rest, such as the epilogue of a multipart body, and verifies the digests. Throws `invalid_argument` when one does not
   * match, and the error that the stream was destroyed with.
   */
  async verify(): Promise<void> {
    this.unpipe();
    this.resume();
    await finished(this);
    for (const [digest, hash] of this.#hashes) assertDigest(digest, hash.digest());
  }
}
