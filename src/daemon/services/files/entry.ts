import { isUtf8 } from 'node:buffer';
import { constants } from 'node:fs';
import { basename } from 'node:path';
import { type Attribute, type RawEntry, readRawEntry } from '../../os/entries.ts';
import type { Names, UserDatabase } from '../../os/users.ts';
import { permissionString } from './permissions.ts';

/**
 * `unspecified`: a link without a target, a fifo, a socket, a device, or what could not be looked at. Links have
 * the type of their target, so that `symlink` is for those who have only seen the name.
 */
export type EntryType = 'file' | 'directory' | 'symlink' | 'unspecified';

/** One name in the file system, described as it is itself; of a link, type, mode and metadata are its target's. */
export interface Entry {
  readonly name: string;
  readonly type: EntryType;
  readonly path: string;
  /** In bytes. */
  readonly size: bigint;
  /** The nine permission bits; 0 when a link has no target. */
  readonly mode: number;
  /** Go-style, see `permissionString`. */
  readonly permissions: string;
  /** A name, or the number as text when there is none. */
  readonly owner: string;
  readonly group: string;
  /** Since the epoch. */
  readonly modifiedNs: bigint;
  /** Where a link leads to in the end, its own path when that cannot be told; null for all others. */
  readonly symlinkTarget: string | null;
  readonly metadata: Readonly<Record<string, string>>;
}

/** What entries are described from, beside the file system. */
export interface EntrySource {
  readonly users: UserDatabase;
  /** Of the attributes that carry metadata, like `user.svc.`, so that nobody else's are shown. */
  readonly metadataPrefix: string;
}

/**
 * Describes what is at `path`, without following the last link. Throws lstat(2)'s errors, for the path itself
 * only: a link's target and the metadata are never a reason to fail.
 */
export async function readEntry(path: string, { users, metadataPrefix }: EntrySource): Promise<Entry> {
  const raw = await readRawEntry(path, metadataPrefix);
  return describe(raw, basename(path) || '/', path, { names: users.names(), metadataPrefix });
}

/** What the kernel told, in the words of the service. Bytes that are not UTF-8 have become U+FFFD. */
export function describe(
  raw: RawEntry,
  name: string,
  path: string,
  { names, metadataPrefix }: { readonly names: Names; readonly metadataPrefix: string },
): Entry {
  return {
    name,
    type: typeOf(raw.targetMode),
    path,
    size: raw.size,
    mode: raw.targetMode & 0o777,
    permissions: permissionString(raw.mode),
    owner: names.userName(raw.uid),
    group: names.groupName(raw.gid),
    modifiedNs: raw.modifiedNs,
    symlinkTarget: kind(raw.mode) === constants.S_IFLNK ? (raw.resolved?.toString() ?? path) : null,
    metadata: raw.attributes.length === 0 ? NO_METADATA : metadataOf(raw.attributes, metadataPrefix),
  };
}

const NO_METADATA: Readonly<Record<string, string>> = Object.freeze({});

function metadataOf(attributes: readonly Attribute[], prefix: string): Record<string, string> {
  const readable = attributes.filter(({ value }) => isUtf8(value));
  return Object.fromEntries(readable.map(({ name, value }) => [name.slice(prefix.length), value.toString()]));
}

function typeOf(mode: number): EntryType {
  switch (kind(mode)) {
    case constants.S_IFREG:
      return 'file';
    case constants.S_IFDIR:
      return 'directory';
    default:
      return 'unspecified';
  }
}

function kind(mode: number): number {
  return mode & constants.S_IFMT;
}
