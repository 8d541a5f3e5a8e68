import { EnvdError } from '../../../../base/errors.ts';
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
export function assertDigest({ field, algorithm, digest }: AnnouncedDigest, found: Buffer): void {
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
