import { constants } from 'node:fs';
import { Allowance } from '../../../base/allowance.ts';
import { EnvdError } from '../../../base/errors.ts';
import type { DirectoryReader, FullEntry } from '../../linux/files/directory-reader.ts';
import type { OpenFile } from '../../linux/files/open-file.ts';
import type { Lanes } from '../../linux/lanes/lanes.ts';
import { type BytePath, pathBuffer } from '../../linux/paths/byte-path.ts';
import { MAX_DEPTH } from '../../linux/paths/paths.ts';
import { ArchivedTree } from '../../services/files/archived-tree.ts';

/** An archive with more entries would need ZIP64, which not every program reads. */
const MAX_ENTRIES = 65_535;
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
export class ZipMemory extends Allowance {
  constructor() {
    super(KEPT_BYTES);
  }
}

/**
 * Yields the files and directories below the directory at an absolute path, which may be a symbolic link. Of a mounted file
 * system of the kernel, yields only the mount point. Throws `aborted` at the end if something could not be read,
 * `resource_exhausted` when there are too many entries, and `not_found` and `invalid_argument` before the first one.
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
  #entries = 0;
  #kept = 0;

  constructor(tree: ArchivedTree, shown: string, memory: ZipMemory) {
    this.#tree = tree;
    this.#shown = shown;
    this.#memory = memory;
  }

  async *members(): AsyncGenerator<ZipMember> {
    const { root } = this.#tree;
    yield* this.#directory(root, '', await deviceOf(root), 1);
    this.#tree.throwIfIncomplete();
  }

  [Symbol.dispose](): void {
    this.#memory.release(this.#kept);
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
    if (entry.device !== device && (await this.#tree.isPseudo(reader))) return;
    if (depth === MAX_DEPTH) return this.#fail(path, `directory is more than ${MAX_DEPTH} levels deep`);
    yield* this.#directory(reader, path, entry.device, depth + 1);
  }

  /** Counts a member. Throws `resource_exhausted` when there are too many. */
  #member({ mode, seconds, nanoseconds }: FullEntry, path: BytePath): Omit<ZipMember, 'input'> {
    const bytes = ENTRY_BYTES + path.length;
    this.#entries += 1;
    if (this.#entries > MAX_ENTRIES || !this.#memory.take(bytes)) {
      const message = `zip archive is incomplete: more entries than fit into one: '${this.#shown}': use format=tar`;
      throw new EnvdError('resource_exhausted', message);
    }
    this.#kept += bytes;
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

async function deviceOf({ file }: DirectoryReader): Promise<bigint> {
  return (await file.exactStat()).dev;
}
