import { constants } from 'node:fs';
import { EnvdError, isSystemError } from '../../../base/errors.ts';
import { Semaphore } from '../../../base/semaphore.ts';
import type { DirectoryReader, FullEntry } from '../../linux/files/directory-reader.ts';
import type { OpenFile } from '../../linux/files/open-file.ts';
import type { Lanes } from '../../linux/lanes/lanes.ts';
import { type BytePath, pathBuffer } from '../../linux/paths/byte-path.ts';
import { MAX_DEPTH } from '../../linux/paths/paths.ts';
import { ArchivedTree } from '../../services/files/archived-tree.ts';

/** For its directory, an archive keeps this many bytes of each entry, besides the name. */
const ENTRY_BYTES = 512;
/** All archives together may keep this many bytes. */
const KEPT_BYTES = 64 * 1024 * 1024;
const CHUNK = 64 * 1024;
/**
 * Times of MS-DOS are between these, in milliseconds since the epoch. A day on each side is left out because of time zones.
 */
const FIRST_MS = Date.UTC(1980, 0, 2);
const LAST_MS = Date.UTC(2107, 11, 30);

/** A member of the archive. A directory has no input. Names are bytes. */
export interface ZipMember {
  readonly name: Uint8Array;
  readonly lastModified: Date;
  readonly mode: number;
  readonly input?: Uint8Array | AsyncIterable<Uint8Array>;
}

/** Limits the memory that all archives keep until their ends. */
export class ZipMemory extends Semaphore {
  constructor() {
    super(KEPT_BYTES);
  }
}

/**
 * Yields the files and directories below the directory at an absolute path, which may be a symbolic link. Of a mounted file
 * system of the kernel, yields only the mount point. Throws `aborted` at the end if something could not be read, and
 * `resource_exhausted`, `not_found` and `invalid_argument` before the first one.
 */
export async function* membersBelow(
  path: string,
  memory: ZipMemory,
  lanes: Lanes,
): AsyncGenerator<ZipMember> {
  await using tree = await ArchivedTree.open(path, lanes);
  using zip = new ZipTree(tree, path, memory);
  yield* zip.members();
}

class ZipTree implements Disposable {
  readonly #tree: ArchivedTree;
  readonly #shown: string;
  readonly #memory: ZipMemory;
  /** The bytes that were taken for this archive, and those of its members so far. */
  #taken = 0;
  #kept = 0;

  constructor(tree: ArchivedTree, shown: string, memory: ZipMemory) {
    this.#tree = tree;
    this.#shown = shown;
    this.#memory = memory;
  }

  async *members(): AsyncGenerator<ZipMember> {
    const { root } = this.#tree;
    const device = await deviceOf(root);
    await using again = await root.openDirectory('.');
    await this.#reserve(again, 0, device, 1);
    yield* this.#directory(root, '', device, 1);
    this.#tree.throwIfIncomplete();
  }

  [Symbol.dispose](): void {
    this.#memory.release(this.#taken);
  }

  /**
   * Takes the memory for all members before the first byte is sent, because a response that has begun cannot be refused. The
   * walk for the archive itself tells what cannot be read.
   */
  async #reserve(reader: DirectoryReader, above: number, device: bigint, depth: number): Promise<void> {
    for (;;) {
      const batch = (await unlessFailed(reader.next())) ?? [];
      if (batch.length === 0) return;
      for (const entry of batch) {
        const kind = entry.mode & constants.S_IFMT;
        const length = above + entry.name.length + 1;
        if (kind === constants.S_IFREG || kind === constants.S_IFDIR) this.#take(ENTRY_BYTES + length);
        if (kind === constants.S_IFDIR && depth < MAX_DEPTH)
          await this.#reserveBelow(reader, entry, { length, device, depth });
      }
    }
  }

  async #reserveBelow(
    reader: DirectoryReader,
    entry: FullEntry,
    { length, device, depth }: { length: number; device: bigint; depth: number },
  ): Promise<void> {
    await using below = await unlessFailed(reader.openDirectory(entry.name));
    if (below && !(await this.#isLeftOut(below, entry, device)))
      await this.#reserve(below, length, entry.device, depth + 1);
  }

  /** Returns whether a directory is the mount point of a file system of the kernel. */
  async #isLeftOut(reader: DirectoryReader, entry: FullEntry, device: bigint): Promise<boolean> {
    return entry.device !== device && (await this.#tree.isPseudo(reader));
  }

  /** Throws `resource_exhausted` when the archives have no memory left. */
  #take(bytes: number): void {
    if (!this.#memory.take(bytes)) {
      const message = `zip archive has more entries than the memory allows: '${this.#shown}': use format=tar`;
      throw new EnvdError('resource_exhausted', message);
    }
    this.#taken += bytes;
  }

  /** @param path ends with a slash, unless it is empty */
  async *#directory(
    reader: DirectoryReader,
    path: BytePath,
    device: bigint,
    depth: number,
  ): AsyncGenerator<ZipMember> {
    for (;;) {
      const batch = (await this.#attempt(path, () => reader.next())) ?? [];
      if (batch.length === 0) return;
      for (const entry of batch) {
        const name = path + entry.name;
        const kind = entry.mode & constants.S_IFMT;
        if (kind === constants.S_IFREG) yield* this.#file(reader, entry, name);
        else if (kind === constants.S_IFDIR) yield* this.#below(reader, entry, `${name}/`, device, depth);
        else if (entry.mode === 0) this.#fail(name, 'entry could not be read');
      }
    }
  }

  async *#file(reader: DirectoryReader, entry: FullEntry, name: BytePath): AsyncGenerator<ZipMember> {
    if (entry.content) {
      yield { ...this.#member(entry, name), input: entry.content };
      return;
    }
    const file = await this.#attempt(name, () => reader.openFile(entry.name));
    if (!file) return;
    // The file can be closed then, because the archive reads each member before it asks for the next one.
    await using _ = file;
    const status = await file.exactStat();
    if (status.isFile() && status.ino === entry.inode)
      yield { ...this.#member(entry, name), input: this.#content(file, name) };
  }

  async *#content(file: OpenFile, name: BytePath): AsyncGenerator<Uint8Array> {
    for (let position = 0; ; ) {
      const buffer = Buffer.allocUnsafeSlow(CHUNK);
      const count = await this.#attempt(name, () => file.read(buffer, CHUNK, position));
      if (!count) return;
      position += count;
      yield buffer.subarray(0, count);
    }
  }

  async *#below(
    parent: DirectoryReader,
    entry: FullEntry,
    path: BytePath,
    device: bigint,
    depth: number,
  ): AsyncGenerator<ZipMember> {
    const reader = await this.#attempt(path, () => parent.openDirectory(entry.name));
    if (!reader) return;
    await using _ = reader;
    yield this.#member(entry, path);
    if (await this.#isLeftOut(reader, entry, device)) return;
    if (depth === MAX_DEPTH) return this.#fail(path, `directory is more than ${MAX_DEPTH} levels deep`);
    yield* this.#directory(reader, path, entry.device, depth + 1);
  }

  /** Counts a member. Throws `resource_exhausted` if entries were added meanwhile for which there is no memory. */
  #member({ mode, seconds, nanoseconds }: FullEntry, path: BytePath): Omit<ZipMember, 'input'> {
    this.#kept += ENTRY_BYTES + path.length;
    if (this.#kept > this.#taken) this.#take(this.#kept - this.#taken);
    const modifiedMs = seconds * 1000 + Math.trunc(nanoseconds / 1e6);
    const lastModified = new Date(Math.min(Math.max(modifiedMs, FIRST_MS), LAST_MS));
    return { name: pathBuffer(path), lastModified, mode: mode & 0o777 };
  }

  /** Runs a step for a member. Errors name its path with a slash at the beginning, which names in the archive do not have. */
  #attempt<T>(path: BytePath, step: () => Promise<T>): Promise<T | null> {
    return this.#tree.attempt(`/${path}`, step);
  }

  #fail(path: BytePath, problem: string): void {
    this.#tree.fail(`/${path}`, problem);
  }
}

/** Returns null if a system call has failed. */
async function unlessFailed<T>(step: Promise<T>): Promise<T | null> {
  try {
    return await step;
  } catch (error) {
    if (!isSystemError(error)) throw error;
    return null;
  }
}

async function deviceOf({ file }: DirectoryReader): Promise<bigint> {
  return (await file.exactStat()).dev;
}
