import { closeSync } from 'node:fs';
import { type BytePath, pathBuffer } from './byte-path.ts';
import { type DirectoryRecords, native } from './native.ts';

/** What the kernel tells about one name in the file system; names are bytes, not always UTF-8. */
export interface RawEntry {
  readonly name: Buffer;
  /** `st_mode`, inode(7); 0 when the entry could not be looked at, all numbers are then. */
  readonly mode: number;
  /** Of a link: its target's, 0 when there is none. Of all others: theirs. */
  readonly targetMode: number;
  readonly uid: number;
  readonly gid: number;
  /** In bytes. */
  readonly size: bigint;
  /** Since the epoch. */
  readonly modifiedNs: bigint;
  /** Of a link: the path it leads to in the end, or null when that cannot be told. */
  readonly resolved: Buffer | null;
  readonly attributes: readonly Attribute[];
}

/** An extended attribute, xattr(7). */
export interface Attribute {
  readonly name: string;
  readonly value: Buffer;
}

/** Bytes before the name; the layout is in `native/index.d.ts`. */
const HEAD = 48;
const ATTRIBUTE_HEAD = 8;
const NO_ATTRIBUTES: readonly Attribute[] = [];

/**
 * Looks at `path` without following its last link. Of the extended attributes, those of the file itself or of the
 * link's target whose names start with `prefix` are told. Throws lstat(2)'s errors.
 */
export async function readRawEntry(path: string, prefix: string): Promise<RawEntry> {
  return decode(await native.readEntry(Buffer.from(path), prefix), 0);
}

/** A directory that is being listed, and those below it. */
export class DirectoryListing implements Disposable {
  /** Sorted by the bytes of their names, and decoded as they are taken. */
  readonly entries: Iterable<RawEntry>;
  readonly #prefix: string;
  readonly #descriptor: number;
  readonly #owner: number | null;

  private constructor(listed: DirectoryRecords, prefix: string) {
    this.entries = decodeAll(listed.records);
    this.#prefix = prefix;
    this.#descriptor = listed.descriptor;
    this.#owner = listed.owner;
  }

  /** Looks at all entries of the directory, which may be a link; `isDeep`: others below it follow. Throws open(2)'s errors. */
  static async open(path: string, prefix: string, isDeep: boolean): Promise<DirectoryListing> {
    return new DirectoryListing(await native.readDirectory(Buffer.from(path), prefix, isDeep), prefix);
  }

  /** The same for a directory below, by its path from here, which no link is on. */
  async below(path: BytePath): Promise<Iterable<RawEntry>> {
    const { readDirectoryBelow } = native;
    return decodeAll(await readDirectoryBelow(this.#descriptor, pathBuffer(path), this.#prefix, this.#owner));
  }

  [Symbol.dispose](): void {
    if (this.#descriptor >= 0) closeSync(this.#descriptor);
  }
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

/** Attributes as they end a record, and as `native.readAttributes` has them. */
export function decodeAttributes(records: Buffer, start = 0, end = records.length): Attribute[] {
  const attributes: Attribute[] = [];
  let at = start;
  while (at < end) {
    const name = at + ATTRIBUTE_HEAD;
    const value = name + records.readUInt32LE(at);
    at = value + records.readUInt32LE(name - 4);
    attributes.push({ name: records.toString('utf8', name, value), value: records.subarray(value, at) });
  }
  return attributes;
}
