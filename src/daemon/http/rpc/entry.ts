import { create } from '@bufbuild/protobuf';
import { type EntryInfo, EntryInfoSchema, FileType } from '../../../gen/filesystem/filesystem_pb.js';
import { splitTime } from '../../linux/files/times.ts';
import type { Entry, EntryType } from '../../services/files/entries/entry.ts';
import { tellableTime } from '../../services/files/entries/times.ts';

const FILE_TYPE: Readonly<Record<EntryType, FileType>> = {
  unspecified: FileType.UNSPECIFIED,
  file: FileType.FILE,
  directory: FileType.DIRECTORY,
  symlink: FileType.SYMLINK,
};

export function entryToMessage(entry: Entry): EntryInfo {
  const [seconds, nanos] = splitTime(tellableTime(entry.modifiedNs));
  return create(EntryInfoSchema, {
    name: entry.name,
    type: FILE_TYPE[entry.type],
    path: entry.path,
    size: entry.size,
    mode: entry.mode,
    permissions: entry.permissions,
    owner: entry.owner,
    group: entry.group,
    modifiedTime: { seconds: BigInt(seconds), nanos },
    ...(entry.symlinkTarget !== null && { symlinkTarget: entry.symlinkTarget }),
    metadata: entry.metadata,
  });
}
