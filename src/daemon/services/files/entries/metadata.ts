import { EnvdError } from '../../../../base/errors.ts';
import type { OpenFile } from '../../../linux/files/open-file.ts';
import { Attributes } from '../../../linux/files/xattr.ts';

/** Maps keys to values. The keys have no prefix and are in the order of the file system. */
export type MetadataValues = Readonly<Record<string, string>>;

/** Describes metadata to store as extended attributes. */
export interface FileMetadata {
  readonly values: MetadataValues;
  /** The prefix of the attribute names, such as `user.svc.`. Other attributes are not touched. */
  readonly prefix: string;
}

export function isEmpty({ values }: FileMetadata): boolean {
  return Object.keys(values).length === 0;
}

/** The name of an attribute has at most this many bytes. Source: XATTR_NAME_MAX of linux/limits.h. */
const MAX_NAME = 255;
/** All names, with their prefixes, and values of one file have at most this many bytes. */
const MAX_TOTAL = 4096;
const PRINTABLE_ASCII = /^[\x20-\x7e]*$/;

/** Throws `invalid_argument` that names the key if this metadata cannot be stored. */
export function validateMetadata({ values, prefix }: FileMetadata): void {
  const longest = MAX_NAME - prefix.length;
  let total = 0;
  for (const [key, value] of Object.entries(values)) {
    if (key === '') throw invalid('metadata key is empty');
    if (!PRINTABLE_ASCII.test(key)) throw invalid(`metadata key is not printable ASCII: '${key}'`);
    if (!PRINTABLE_ASCII.test(value)) throw invalid(`metadata value of '${key}' is not printable ASCII`);
    if (key.length > longest) {
      throw invalid(`metadata key '${key}' is ${key.length} bytes long, at most ${longest} are allowed`);
    }
    total += prefix.length + key.length + value.length;
  }
  if (total > MAX_TOTAL) {
    throw invalid(`metadata takes ${total} bytes, at most ${MAX_TOTAL} are allowed`);
  }
}

function invalid(message: string): EnvdError {
  return new EnvdError('invalid_argument', message);
}

/**
 * Replaces the open file's metadata by `values`. It sets and removes only attributes that differ, and restores the
 * previous ones on failure. Returns whether the metadata was stored, which is false on a file system without extended
 * attributes. Throws `no_space`.
 */
export async function replaceMetadata(file: OpenFile, { values, prefix }: FileMetadata): Promise<boolean> {
  const attributes = new Attributes(file);
  const previous = await attributes.read(prefix);
  try {
    return await change(attributes, prefix, previous, encode(values));
  } catch (error) {
    await change(attributes, prefix, await attributes.read(prefix), previous);
    if (!isFull(error)) throw error;
    throw new EnvdError('no_space', 'attempted to write metadata: not enough disk space available', {
      cause: error,
    });
  }
}

type Encoded = ReadonlyMap<string, Buffer>;

function encode(metadata: MetadataValues): Encoded {
  return new Map(Object.entries(metadata).map(([key, value]) => [key, Buffer.from(value)]));
}

async function change(attributes: Attributes, prefix: string, from: Encoded, to: Encoded): Promise<boolean> {
  for (const key of from.keys()) {
    if (!to.has(key)) await attributes.remove(prefix + key);
  }
  for (const [key, value] of to) {
    const isSame = from.get(key)?.equals(value) ?? false;
    if (!isSame && !(await attributes.set(prefix + key, value))) return false;
  }
  return true;
}

/** ENOSPC on ext4 can also mean that the attributes do not fit into their single block. */
function isFull(error: unknown): boolean {
  const full = ['ENOSPC', 'EDQUOT', 'E2BIG', 'ERANGE'];
  return error instanceof Error && 'code' in error && full.includes(String(error.code));
}
