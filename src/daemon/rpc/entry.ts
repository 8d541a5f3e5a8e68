import { create, toBinary, toJsonString } from '@bufbuild/protobuf';
import {
  type EntryInfo,
  EntryInfoSchema,
  FileType,
  ListDirResponseSchema,
} from '../../gen/filesystem/filesystem_pb.js';
import type { Entry, EntryType } from '../services/files/entry.ts';
import type { Codec } from './codec.ts';

const FILE_TYPE: Readonly<Record<EntryType, FileType>> = {
  unspecified: FileType.UNSPECIFIED,
  file: FileType.FILE,
  directory: FileType.DIRECTORY,
  symlink: FileType.SYMLINK,
};

const SECOND = 1_000_000_000n;

/** Converts an entry to its message. */
export function entryToMessage(entry: Entry): EntryInfo {
  // Timestamp: nanoseconds are never negative, also before 1970.
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

const HEAD = '{"entries":[';
const TAIL = ']}';

/**
 * The response of ListDir, encoded slice by slice to keep the event loop responsive; byte for byte that of encoding the
 * whole message.
 */
export class ListAnswer {
  readonly #codec: Codec;
  readonly #chunks: Buffer[] = [];

  constructor(codec: Codec) {
    this.#codec = codec;
  }

  add(entries: EntryInfo[]): void {
    if (entries.length === 0) return;
    const slice = create(ListDirResponseSchema, { entries });
    if (this.#codec === 'binary') {
      // Concatenated protobuf messages are one message, with the entries of all.
      this.#chunks.push(Buffer.from(toBinary(ListDirResponseSchema, slice)));
    } else {
      const list = toJsonString(ListDirResponseSchema, slice).slice(HEAD.length, -TAIL.length);
      this.#chunks.push(Buffer.from((this.#chunks.length === 0 ? HEAD : ',') + list));
    }
  }

  /** The encoded message; null when nothing was added. */
  end(): readonly Buffer[] | null {
    if (this.#chunks.length === 0) return null;
    return this.#codec === 'json' ? [...this.#chunks, Buffer.from(TAIL)] : this.#chunks;
  }
}
