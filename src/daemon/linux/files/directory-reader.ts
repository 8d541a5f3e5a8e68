import { constants } from 'node:fs';
import { type BytePath, pathBuffer } from '../paths/byte-path.ts';
import { native } from '../system/native.ts';
import { type Attribute, decodeAttributes, HEAD } from './entries.ts';
import type { OpenFile } from './open-file.ts';
import { splitTime } from './times.ts';

/** The status of a file. Source: inode(7). */
export interface FileStatus {
  /** This is `st_mode`. It is 0, like all other numbers, when stat failed. */
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  /** The size is in bytes. */
  readonly size: number;
  /** The modification time has whole seconds since the epoch, and nanoseconds. */
  readonly seconds: number;
  readonly nanoseconds: number;
  readonly links: number;
  readonly device: bigint;
  readonly inode: bigint;
  /** This is `st_rdev`, which devices have. */
  readonly nodeDevice: bigint;
}

/** A directory entry with everything that an archive stores. */
export interface FullEntry extends FileStatus {
  readonly name: BytePath;
  /** The text of a symbolic link. It is empty for other entries. */
  readonly link: BytePath;
  /** All extended attributes. Their names are bytes. */
  readonly attributes: readonly Attribute[];
  /** The content of a regular file if it is small, or else null. */
  readonly content: Buffer | null;
}

const DIRECTORY = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
const FILE = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK | constants.O_NOCTTY;

/**
 * Reads the entries of an open directory in batches, with the permissions of `owner` (see `native.openPlace`). It
 * follows no symbolic link. Its methods throw the system calls' errors.
 */
export class DirectoryReader implements AsyncDisposable {
  readonly file: OpenFile;
  readonly #owner: number | null;

  constructor(file: OpenFile, owner: number | null) {
    this.file = file;
    this.#owner = owner;
  }

  /** Returns the next entries in the order of the directory, at most some hundred, or none at its end. */
  async next(): Promise<FullEntry[]> {
    const { value: records } = await this.file.find(() => native.readNext(this.file.fd, this.#owner));
    const entries: FullEntry[] = [];
    for (let at = 0; at < records.length; at += records.readUInt32LE(at)) entries.push(decode(records, at));
    return entries;
  }

  async openDirectory(name: BytePath): Promise<DirectoryReader> {
    return new DirectoryReader(await this.#open(name, DIRECTORY), this.#owner);
  }

  /** Opens a file for reading. A pipe does not block the open, so the caller must check what was opened. */
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

export async function statusOfFile(file: OpenFile): Promise<FileStatus> {
  const status = await file.exactStat();
  const [seconds, nanoseconds] = splitTime(status.mtimeNs);
  return {
    mode: Number(status.mode),
    uid: Number(status.uid),
    gid: Number(status.gid),
    size: Number(status.size),
    seconds,
    nanoseconds,
    links: Number(status.nlink),
    device: status.dev,
    inode: status.ino,
    nodeDevice: status.rdev,
  };
}

/** Returns all extended attributes of an open file. */
export async function attributesOf(file: OpenFile): Promise<Attribute[]> {
  const pairs = await file.run(() => native.readAttributes(file.fd, ''));
  return decodeAttributes(pairs, 0, pairs.length, 'latin1');
}

/** Decodes a record, whose layout is in `native/index.d.ts`. */
function decode(records: Buffer, at: number): FullEntry {
  const end = at + records.readUInt32LE(at);
  const nameEnd = at + HEAD + records.readUInt32LE(at + 40);
  const linkEnd = nameEnd + records.readUInt32LE(at + 44);
  const pairs = linkEnd < end ? decodeAttributes(records, linkEnd, end, 'latin1') : NO_PAIRS;
  const last = pairs.at(-1);
  // An attribute's name has a dot. So a last pair without one tells about the content.
  const content = last?.name === 'content' ? last.value : null;
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
    attributes: content ? pairs.slice(0, -1) : pairs,
    content,
  };
}

const NO_PAIRS: readonly Attribute[] = [];
