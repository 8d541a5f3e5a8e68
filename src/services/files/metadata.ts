import { EnvdError } from '../../base/errors.ts';
import {
  descriptorPath,
  getUserAttribute,
  listUserAttributes,
  removeUserAttribute,
  setUserAttribute,
} from '../../os/xattr.ts';

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
export function replaceMetadata(descriptor: number, next: Metadata): boolean {
  const path = descriptorPath(descriptor);
  const previous = readAttributes(path);
  try {
    return change(path, previous, attributesOf(next));
  } catch (error) {
    change(path, readAttributes(path), previous);
    if (!isFull(error)) throw error;
    throw new EnvdError('no_space', 'attempted to write metadata: not enough disk space available', {
      cause: error,
    });
  }
}

type Attributes = ReadonlyMap<string, Buffer>;

function attributesOf(metadata: Metadata): Attributes {
  return new Map(Object.entries(metadata).map(([key, value]) => [key, Buffer.from(value)]));
}

/** The attributes under our prefix, by key. */
function readAttributes(path: string): Attributes {
  const attributes = new Map<string, Buffer>();
  for (const name of listUserAttributes(path)) {
    const value = name.startsWith(METADATA_PREFIX) ? getUserAttribute(path, name) : null;
    if (value) attributes.set(name.slice(METADATA_PREFIX.length), value);
  }
  return attributes;
}

function change(path: string, from: Attributes, to: Attributes): boolean {
  for (const key of from.keys()) {
    if (!to.has(key)) removeUserAttribute(path, METADATA_PREFIX + key);
  }
  return [...to]
    .filter(([key, value]) => !from.get(key)?.equals(value))
    .every(([key, value]) => setUserAttribute(path, METADATA_PREFIX + key, value));
}

/** ext4 keeps a file's attributes in one block, and says ENOSPC when they do not fit. */
function isFull(error: unknown): boolean {
  const full = ['ENOSPC', 'EDQUOT', 'E2BIG', 'ERANGE'];
  return error instanceof Error && 'code' in error && full.includes(String(error.code));
}
