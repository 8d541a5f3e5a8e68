import { isUtf8 } from 'node:buffer';
import { constants } from 'node:fs';
import { type Attribute, fileTypeOf, type RawEntry } from '../../../linux/files/entries.ts';
import type { Lanes } from '../../../linux/lanes/lanes.ts';
import { encodeName } from '../../../linux/paths/names.ts';
import type { AccountNames, UserDatabase } from '../../../linux/system/users.ts';
import { permissionString } from './permissions.ts';

/**
 * `unspecified` means a dangling symbolic link, a fifo, a socket or a device, or that lstat(2) failed. A symbolic link
 * has the type of its target. `symlink` is for callers that know only the directory entry.
 */
export type EntryType = 'file' | 'directory' | 'symlink' | 'unspecified';

/** Describes a directory entry. Type, mode and metadata of a symbolic link are its target's, all others its own. */
export interface Entry {
  readonly name: string;
  readonly type: EntryType;
  readonly path: string;
  /** The size is in bytes. */
  readonly size: bigint;
  /** The nine permission bits. They are 0 for a dangling link. */
  readonly mode: number;
  /** They have Go's form; see `permissionString`. */
  readonly permissions: string;
  /** A name, or the uid or gid as text if it has none. */
  readonly owner: string;
  readonly group: string;
  readonly modifiedNs: bigint;
  /** For a symbolic link this is the resolved path, or its own path if it cannot be resolved. It is null for others. */
  readonly symlinkTarget: string | null;
  readonly metadata: Readonly<Record<string, string>>;
}

/** What describing an entry needs besides the file system. */
export interface EntrySource {
  readonly users: UserDatabase;
  readonly lanes: Lanes;
  /** Attributes with this prefix, such as `user.svc.`, hold metadata. Others are not reported. */
  readonly metadataPrefix: string;
}

/** Converts a raw entry. */
export function describe(
  raw: RawEntry,
  name: string,
  path: string,
  { names, metadataPrefix }: { readonly names: AccountNames; readonly metadataPrefix: string },
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
    symlinkTarget:
      fileTypeOf(raw.mode) === constants.S_IFLNK ? (raw.resolved ? encodeName(raw.resolved) : path) : null,
    metadata: raw.attributes.length === 0 ? NO_METADATA : metadataOf(raw.attributes, metadataPrefix),
  };
}

const NO_METADATA: Readonly<Record<string, string>> = Object.freeze({});

function metadataOf(attributes: readonly Attribute[], prefix: string): Record<string, string> {
  const readable = attributes.filter(({ value }) => isUtf8(value));
  return Object.fromEntries(readable.map(({ name, value }) => [name.slice(prefix.length), value.toString()]));
}

function typeOf(mode: number): EntryType {
  switch (fileTypeOf(mode)) {
    case constants.S_IFREG:
      return 'file';
    case constants.S_IFDIR:
      return 'directory';
    default:
      return 'unspecified';
  }
}
