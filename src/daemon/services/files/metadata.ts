import { EnvdError } from '../../../base/errors.ts';
import { type Attributes, attributesOf } from '../../os/xattr.ts';

/** What clients have attached to a file: keys without the prefix, in the order the file system lists them. */
export type Metadata = Readonly<Record<string, string>>;

/** Of the attributes that carry metadata, so that nobody else's are shown. */
export const METADATA_PREFIX = 'user.svc.';
/** XATTR_NAME_MAX of linux/limits.h less the prefix. */
const MAX_KEY = 255 - METADATA_PREFIX.length;
/** Names and values of one file together, the prefix counted for each key. */
const MAX_TOTAL = 4096;
const PRINTABLE_ASCII = /^[\x20-\x7e]*$/;

/** Throws `invalid_argument`, naming the key, when the file could not carry this metadata. */
export function validateMetadata(metadata: Metadata): void {
  let total = 0;
  for (const [key, value] of Object.entries(metadata)) {
    if (key === '') throw invalid('metadata key is empty');
    if (!PRINTABLE_ASCII.test(key)) throw invalid(`metadata key is not printable ASCII: '${key}'`);
    if (!PRINTABLE_ASCII.test(value)) throw invalid(`metadata value of '${key}' is not printable ASCII`);
    if (key.length > MAX_KEY) {
      throw invalid(`metadata key '${key}' is ${key.length} bytes long, at most ${MAX_KEY} are allowed`);
    }
    total += METADATA_PREFIX.length + key.length + value.length;
  }
  if (total > MAX_TOTAL) {
    throw invalid(`metadata takes ${total} bytes, at most ${MAX_TOTAL} are allowed`);
  }
}

function invalid(message: string): EnvdError {
  return new EnvdError('invalid_argument', message);
}

/**
 * Makes `next` the open file's metadata: changes only what differs, and puts all back when that fails half-way.
 * Returns whether the file carries it now: false on a file system without attributes.
 * Throws `no_space` when the file system has no room for it.
 */
export async function replaceMetadata(descriptor: number, next: Metadata): Promise<boolean> {
  const attributes = await attributesOf(descriptor);
  const previous = await attributes.read(METADATA_PREFIX);
  try {
    return await change(attributes, previous, encode(next));
  } catch (error) {
    await change(attributes, await attributes.read(METADATA_PREFIX), previous);
    if (!isFull(error)) throw error;
    throw new EnvdError('no_space', 'attempted to write metadata: not enough disk space available', {
      cause: error,
    });
  }
}

/** Values by key. */
type Encoded = ReadonlyMap<string, Buffer>;

function encode(metadata: Metadata): Encoded {
  return new Map(Object.entries(metadata).map(([key, value]) => [key, Buffer.from(value)]));
}

async function change(attributes: Attributes, from: Encoded, to: Encoded): Promise<boolean> {
  for (const key of from.keys()) {
    if (!to.has(key)) await attributes.remove(METADATA_PREFIX + key);
  }
  for (const [key, value] of to) {
    const isSame = from.get(key)?.equals(value) ?? false;
    if (!isSame && !(await attributes.set(METADATA_PREFIX + key, value))) return false;
  }
  return true;
}

/** ext4 keeps a file's attributes in one block, and says ENOSPC when they do not fit. */
function isFull(error: unknown): boolean {
  const full = ['ENOSPC', 'EDQUOT', 'E2BIG', 'ERANGE'];
  return error instanceof Error && 'code' in error && full.includes(String(error.code));
}
