import { closeSync } from 'node:fs';
import { type BytePath, bytePath, pathBuffer } from './byte-path.ts';
import { entering, type Lane, laneOf } from './lane.ts';
import { type FindOptions, type Lanes, MAX_MOUNTS, NoAnswer } from './lanes.ts';
import { type DirectoryRecords, native } from './native.ts';

/** One directory entry and its attributes, as the kernel reports them. The name may not be valid UTF-8. */
export interface RawEntry {
  readonly name: Buffer;
  /** `st_mode`, inode(7); 0, like all other numbers, when lstat(2) of the entry failed. */
  readonly mode: number;
  /** For a symbolic link the target's mode, 0 when there is no target; otherwise `mode`. */
  readonly targetMode: number;
  readonly uid: number;
  readonly gid: number;
  /** In bytes. */
  readonly size: bigint;
  /** Nanoseconds since the epoch. */
  readonly modifiedNs: bigint;
  /** For a symbolic link the path it finally resolves to, or null when it cannot be resolved. */
  readonly resolved: Buffer | null;
  readonly attributes: readonly Attribute[];
}

/** An extended attribute, xattr(7). */
export interface Attribute {
  readonly name: string;
  readonly value: Buffer;
}

/** Bytes before the name; the layout is in `native/index.d.ts`. */
export const HEAD = 80;
const ATTRIBUTE_HEAD = 8;
const NO_ATTRIBUTES: readonly Attribute[] = [];

/**
 * Reads the entry at `path` without following a final symbolic link. Attributes: those of the file, or of the link's
 * target, whose names start with `prefix`. Throws lstat(2)'s errors.
 */
export async function readRawEntry(path: Buffer, prefix: string, lanes: Lanes): Promise<RawEntry> {
  const options = { base: laneOf(bytePath(path)), isBatched: true };
  const { value } = await lanes.find(() => native.readEntry(path, prefix), options);
  return decode(value, 0);
}

/** A listing of a directory and, on request, of those below it. */
export class DirectoryListing implements Disposable {
  /** Sorted by the bytes of the names; decoded lazily. */
  readonly entries: Iterable<RawEntry>;
  /** As it was opened. */
  readonly path: BytePath;
  readonly #prefix: string;
  readonly #directory: Listed;
  readonly #lanes: Lanes;

  private constructor(path: BytePath, directory: Listed, prefix: string, lanes: Lanes) {
    this.path = path;
    this.entries = decodeAll(directory.records);
    this.#prefix = prefix;
    this.#directory = directory;
    this.#lanes = lanes;
  }

  /**
   * Reads all entries of the directory, which may be a symbolic link; `isDeep`: `below` will be called. Throws
   * open(2)'s errors.
   */
  static async open(
    path: BytePath,
    prefix: string,
    isDeep: boolean,
    lanes: Lanes,
  ): Promise<DirectoryListing> {
    const read = () => native.readDirectory(pathBuffer(path), prefix, isDeep);
    const ask = () => native.readEntry(pathBuffer(path), prefix);
    return new DirectoryListing(path, await list(read, lanes, { ask, base: laneOf(path) }), prefix, lanes);
  }

  /** Reads the directory at the relative `path`, which must not contain symbolic links (ELOOP) and mounts (EXDEV). */
  async below(path: BytePath): Promise<Iterable<RawEntry>> {
    const { descriptor, owner, lane: base } = this.#directory;
    const read = () => native.readDirectoryBelow(descriptor, pathBuffer(path), this.#prefix, owner);
    const ask = async () => {};
    return decodeAll((await list(read, this.#lanes, { ask, base })).records);
  }

  /** Closing a directory asks no server: only files have FUSE_FLUSH. */
  [Symbol.dispose](): void {
    if (this.#directory.descriptor >= 0) closeSync(this.#directory.descriptor);
  }
}

type Listed = DirectoryRecords & { readonly lane: Lane };

/**
 * Where entries, or the targets of links, are on mounts that may not answer, reads again with leave to ask these. If they
 * do not answer, such entries are left without a status.
 */
async function list(
  read: () => Promise<DirectoryRecords>,
  lanes: Lanes,
  options: Pick<FindOptions<DirectoryRecords>, 'ask' | 'base'>,
): Promise<Listed> {
  const discard = ({ descriptor }: DirectoryRecords) => {
    if (descriptor >= 0) closeSync(descriptor);
  };
  const { value, lane } = await lanes.find(read, { ...options, discard });
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
  for (let at = 0; at < records.length; at += records.readUInt32LE(at)) yield decode(records, at);
}

function decode(records: Buffer, at: number): RawEntry {
  const end = at + records.readUInt32LE(at);
  const nameEnd = at + HEAD + records.readUInt32LE(at + 40);
  const resolvedEnd = nameEnd + records.readUInt32LE(at + 44);
  return {
    name: records.subarray(at + HEAD, nameEnd),
    mode: records.readUInt32LE(at + 4),
    targetMode: records.readUInt32LE(at + 8),
    uid: records.readUInt32LE(at + 12),
    gid: records.readUInt32LE(at + 16),
    modifiedNs: records.readBigInt64LE(at + 24) * 1_000_000_000n + BigInt(records.readUInt32LE(at + 20)),
    size: records.readBigInt64LE(at + 32),
    resolved: resolvedEnd > nameEnd ? records.subarray(nameEnd, resolvedEnd) : null,
    attributes: resolvedEnd < end ? decodeAttributes(records, resolvedEnd, end) : NO_ATTRIBUTES,
  };
}

/**
 * Decodes attributes from the end of a record or from the result of `native.readAttributes`; their names as UTF-8, or as
 * bytes.
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
