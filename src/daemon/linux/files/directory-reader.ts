import { constants } from 'node:fs';
import { type BytePath, pathBuffer } from '../paths/byte-path.ts';
import { native } from '../system/native.ts';
import { type Attribute, decodeAttributes, HEAD } from './entries.ts';
import type { OpenFile } from './open-file.ts';

/** Bytes `start` to `start + length` of a file. */
export interface DataRange {
  readonly start: number;
  readonly length: number;
}

/** The status of a file, inode(7). */
export interface FileStatus {
  /** `st_mode`; 0, like all other numbers, when stat failed. */
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  /** In bytes. */
  readonly size: number;
  /** Modification time: whole seconds since the epoch, and nanoseconds. */
  readonly seconds: number;
  readonly nanoseconds: number;
  readonly links: number;
  readonly device: bigint;
  readonly inode: bigint;
  /** `st_rdev`, of a device. */
  readonly nodeDevice: bigint;
}

/** A directory entry with everything that an archive stores. */
export interface FullEntry extends FileStatus {
  readonly name: BytePath;
  /** The text of a symbolic link, else empty. */
  readonly link: BytePath;
  /** All extended attributes; names are bytes. */
  readonly attributes: readonly Attribute[];
  /** The content of a regular file if it is small, else null. */
  readonly content: Buffer | null;
  /** The ranges of a large file that hold data, if it has holes, else null. */
  readonly map: readonly DataRange[] | null;
}

const DIRECTORY = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
const FILE = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK | constants.O_NOCTTY;

/**
 * An open directory, whose entries are read in batches with the permissions of `owner` (see `native.openPlace`); no
 * symbolic link is followed. Methods throw the system calls' errors.
 */
export class DirectoryReader implements AsyncDisposable {
  readonly file: OpenFile;
  readonly #owner: number | null;

  constructor(file: OpenFile, owner: number | null) {
    this.file = file;
    this.#owner = owner;
  }

  /** The next entries in the order of the directory, some hundred at most; none at its end. */
  async next(): Promise<FullEntry[]> {
    const { value: records } = await this.file.find(() => native.readNext(this.file.fd, this.#owner));
    const entries: FullEntry[] = [];
    for (let at = 0; at < records.length; at += records.readUInt32LE(at)) entries.push(decode(records, at));
    return entries;
  }

  async openDirectory(name: BytePath): Promise<DirectoryReader> {
    return new DirectoryReader(await this.#open(name, DIRECTORY), this.#owner);
  }

  /** Opens a file for reading. Pipes do not block; the caller checks what it is. */
  openFile(name: BytePath): Promise<OpenFile> {
    return this.#open(name, FILE);
  }

  async #open(name: BytePath, flags: number): Promise<OpenFile> {
    const open = () => native.openAt(this.file.fd, pathBuffer(name), flags, this.#owner);
    return this.file.openOther(open, flags);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.file.close();
  }
}

/** The status of an open file. */
export async function statusOfFile(file: OpenFile): Promise<FileStatus> {
  const status = await file.exactStat();
  const seconds = status.mtimeNs / 1_000_000_000n - (status.mtimeNs % 1_000_000_000n < 0n ? 1n : 0n);
  return {
    mode: Number(status.mode),
    uid: Number(status.uid),
    gid: Number(status.gid),
    size: Number(status.size),
    seconds: Number(seconds),
    nanoseconds: Number(status.mtimeNs - seconds * 1_000_000_000n),
    links: Number(status.nlink),
    device: status.dev,
    inode: status.ino,
    nodeDevice: status.rdev,
  };
}

/** All extended attributes of an open file. */
export async function attributesOf(file: OpenFile): Promise<Attribute[]> {
  const pairs = await file.run(() => native.readAttributes(file.fd, ''));
  return decodeAttributes(pairs, 0, pairs.length, 'latin1');
}

/** The layout is in `native/index.d.ts`. */
function decode(records: Buffer, at: number): FullEntry {
  const end = at + records.readUInt32LE(at);
  const nameEnd = at + HEAD + records.readUInt32LE(at + 40);
  const linkEnd = nameEnd + records.readUInt32LE(at + 44);
  const pairs = linkEnd < end ? decodeAttributes(records, linkEnd, end, 'latin1') : NO_PAIRS;
  const last = pairs.at(-1);
  // What is known of the content follows the attributes, whose names have a dot.
  const content = last?.name === 'content' ? last.value : null;
  const map = last?.name === 'map' ? rangesOf(last.value) : null;
  return {
    name: records.toString('latin1', at + HEAD, nameEnd),
    mode: records.readUInt32LE(at + 4),
    uid: records.readUInt32LE(at + 12),
    gid: records.readUInt32LE(at + 16),
    nanoseconds: records.readUInt32LE(at + 20),
    seconds: Number(records.readBigInt64LE(at + 24)),
    size: Number(records.readBigInt64LE(at + 32)),
    device: records.readBigUInt64LE(at + 48),
    inode: records.readBigUInt64LE(at + 56),
    nodeDevice: records.readBigUInt64LE(at + 64),
    links: records.readUInt32LE(at + 72),
    link: records.toString('latin1', nameEnd, linkEnd),
    attributes: content || map ? pairs.slice(0, -1) : pairs,
    content,
    map,
  };
}

const NO_PAIRS: readonly Attribute[] = [];

function rangesOf(map: Buffer): DataRange[] {
  return Array.from({ length: map.length / 16 }, (_, index) => ({
    start: Number(map.readBigInt64LE(index * 16)),
    length: Number(map.readBigInt64LE(index * 16 + 8)),
  }));
}
