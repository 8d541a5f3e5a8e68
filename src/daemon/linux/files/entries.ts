import { closeSync, constants } from 'node:fs';
import { entering, type Lane, laneOf } from '../lanes/lane.ts';
import { type FindOptions, type Lanes, MAX_MOUNTS, NoAnswer } from '../lanes/lanes.ts';
import { type BytePath, bytePath, pathBuffer } from '../paths/byte-path.ts';
import { type DirectoryRecords, native } from '../system/native.ts';

/** An extended attribute, xattr(7). */
export interface Attribute {
  readonly name: string;
  readonly value: Buffer;
}

/** Returns the file type in `st_mode`, which is one of the constants S_IF of inode(7). */
export function fileTypeOf(mode: number): number {
  return mode & constants.S_IFMT;
}

/** A record has this many bytes before the name. The layout is in `native/index.d.ts`. */
export const HEAD = 80;
const ATTRIBUTE_HEAD = 8;
const NO_ATTRIBUTES: readonly Attribute[] = [];

/**
 * Reads the entry at `path` without following a final symbolic link. It reads the attributes whose names start with
 * `prefix`, for a symbolic link those of its target. Throws lstat(2)'s errors.
 */
export async function readRawEntry(path: Buffer, prefix: string, lanes: Lanes): Promise<RawEntry> {
  const options = { base: laneOf(bytePath(path)), isBatched: true };
  const { value } = await lanes.find(() => native.readEntry(path, prefix), options);
  return new RawEntry(value, 0);
}

/** The entries of a directory. */
export interface ListedEntries {
  /** They are sorted by the bytes of their names, and decoded only when they are taken. */
  readonly entries: Iterable<RawEntry>;
  /** All of them take this many bytes of memory. */
  readonly bytes: number;
}

/** Lists a directory and, on request, the directories below it. */
export class DirectoryListing implements ListedEntries, Disposable {
  readonly entries: Iterable<RawEntry>;
  readonly bytes: number;
  /** The path by which the directory was opened. */
  readonly path: BytePath;
  readonly #prefix: string;
  readonly #directory: Listed;
  readonly #lanes: Lanes;

  private constructor(path: BytePath, directory: Listed, prefix: string, lanes: Lanes) {
    this.path = path;
    this.entries = decodeAll(directory.records);
    this.bytes = directory.records.length;
    this.#prefix = prefix;
    this.#directory = directory;
    this.#lanes = lanes;
  }

  /** Reads a directory, which may be a symbolic link. `isDeep`: `below` will be called. Throws open(2)'s errors. */
  static async open(
    path: BytePath,
    prefix: string,
    isDeep: boolean,
    lanes: Lanes,
  ): Promise<DirectoryListing> {
    const read = () => native.readDirectory(-1, pathBuffer(path), prefix, null, isDeep);
    const ask = () => native.readEntry(pathBuffer(path), prefix);
    return new DirectoryListing(path, await list(read, lanes, { ask, base: laneOf(path) }), prefix, lanes);
  }

  /** Reads the directory at the relative `path`. Throws ELOOP for a symbolic link in it, and EXDEV for a mount. */
  async below(path: BytePath): Promise<ListedEntries> {
    const { descriptor, owner, lane: base } = this.#directory;
    const read = () => native.readDirectory(descriptor, pathBuffer(path), this.#prefix, owner, false);
    const { records } = await list(read, this.#lanes, { base });
    return { entries: decodeAll(records), bytes: records.length };
  }

  /** Closing a directory asks no server, because only files have FUSE_FLUSH. */
  [Symbol.dispose](): void {
    if (this.#directory.descriptor >= 0) closeSync(this.#directory.descriptor);
  }
}

type Listed = DirectoryRecords & { readonly lane: Lane };

/**
 * Reads a directory. Where entries, or the targets of links, are on mounts that may not answer, it reads again with
 * permission to ask these. If they do not answer, their entries have no status.
 */
async function list(
  read: () => Promise<DirectoryRecords>,
  lanes: Lanes,
  options: Pick<FindOptions<DirectoryRecords>, 'ask' | 'base'>,
): Promise<Listed> {
  const discard = ({ descriptor }: DirectoryRecords) => {
    if (descriptor >= 0) closeSync(descriptor);
  };
  const { value, lane } = await lanes.find(read, { ...options, discard, long: true });
  let best = value;
  let wider = lane;
  while (best.mount > 0 && wider.mounts.length < MAX_MOUNTS) {
    wider = entering(wider, best.mount);
    try {
      const next = await lanes.run(wider, read, { discard });
      discard(best);
      best = next;
    } catch (error) {
      if (error instanceof NoAnswer) break;
      discard(best);
      throw error;
    }
  }
  return { ...best, lane };
}

function* decodeAll(records: Buffer): Generator<RawEntry> {
  for (let at = 0; at < records.length; at += records.readUInt32LE(at)) yield new RawEntry(records, at);
}

/**
 * One directory entry and its attributes, as the kernel reports them. The name may not be valid UTF-8. A record of the addon is
 * decoded only as far as it is asked for, because most callers need parts of it.
 */
export class RawEntry {
  readonly #records: Buffer;
  readonly #at: number;

  constructor(records: Buffer, at: number) {
    this.#records = records;
    this.#at = at;
  }

  /** The entry takes this many bytes of memory. */
  get bytes(): number {
    return this.#uint32(0);
  }

  get name(): Buffer {
    return this.#records.subarray(this.#at + HEAD, this.#nameEnd);
  }

  /** `st_mode` of inode(7). It is 0, like all other numbers, when lstat(2) of the entry failed. */
  get mode(): number {
    return this.#uint32(4);
  }

  /** For a symbolic link this is the target's mode, or 0 if there is no target. For other entries it equals `mode`. */
  get targetMode(): number {
    return this.#uint32(8);
  }

  get uid(): number {
    return this.#uint32(12);
  }

  get gid(): number {
    return this.#uint32(16);
  }

  get modifiedNs(): bigint {
    return this.#records.readBigInt64LE(this.#at + 24) * 1_000_000_000n + BigInt(this.#uint32(20));
  }

  get size(): bigint {
    return this.#records.readBigInt64LE(this.#at + 32);
  }

  /** For a symbolic link this is the path that it finally resolves to, or null if it cannot be resolved. */
  get resolved(): Buffer | null {
    const [start, end] = [this.#nameEnd, this.#resolvedEnd];
    return end > start ? this.#records.subarray(start, end) : null;
  }

  get attributes(): readonly Attribute[] {
    const [start, end] = [this.#resolvedEnd, this.#at + this.bytes];
    return start < end ? decodeAttributes(this.#records, start, end) : NO_ATTRIBUTES;
  }

  get #nameEnd(): number {
    return this.#at + HEAD + this.#uint32(40);
  }

  get #resolvedEnd(): number {
    return this.#nameEnd + this.#uint32(44);
  }

  #uint32(offset: number): number {
    return this.#records.readUInt32LE(this.#at + offset);
  }
}

/**
 * Decodes attributes from the end of a record, or from the result of `native.readAttributes`. `names` says whether
 * their names become UTF-8 or bytes.
 */
export function decodeAttributes(
  records: Buffer,
  start = 0,
  end = records.length,
  names: 'utf8' | 'latin1' = 'utf8',
): Attribute[] {
  const attributes: Attribute[] = [];
  for (let at = start; at < end; ) {
    const name = at + ATTRIBUTE_HEAD;
    const value = name + records.readUInt32LE(at);
    at = value + records.readUInt32LE(name - 4);
    attributes.push({ name: records.toString(names, name, value), value: records.subarray(value, at) });
  }
  return attributes;
}
