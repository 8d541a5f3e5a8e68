import { create } from '@bufbuild/protobuf';
import { type EntryInfo, EntryInfoSchema, FileType } from '../../../gen/filesystem/filesystem_pb.js';
import type { Entry, EntryType } from '../../services/files/entries/entry.ts';

const FILE_TYPE: Readonly<Record<EntryType, FileType>> = {
  unspecified: FileType.UNSPECIFIED,
  file: FileType.FILE,
  directory: FileType.DIRECTORY,
  symlink: FileType.SYMLINK,
};

const SECOND = 1_000_000_000n;

/** Converts an entry to its message. */
export function entryToMessage(entry: Entry): EntryInfo {
  // The nanoseconds of a Timestamp are never negative, even before 1970.
  const nanos = ((entry.modifiedNs % SECOND) + SECOND) % SECOND;
  return create(EntryInfoSchema, {
    name: entry.name,
    type: FILE_TYPE[entry.type],
    path: entry.path,
    size: entry.size,
    mode: entry.mode,
    permissions: entry.permissions,
    owner: entry.owner,
    group: entry.group,
    modifiedTime: { seconds: (entry.modifiedNs - nanos) / SECOND, nanos: Number(nanos) },
    ...(entry.symlinkTarget !== null && { symlinkTarget: entry.symlinkTarget }),
    metadata: entry.metadata,
  });
}
