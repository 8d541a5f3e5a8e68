import { constants } from 'node:fs';
import {
  attributesOf,
  type DirectoryReader,
  type FullEntry,
  statusOfFile,
} from '../../../linux/files/directory-reader.ts';
import { fileTypeOf } from '../../../linux/files/entries.ts';
import type { Lanes } from '../../../linux/lanes/lanes.ts';
import type { BytePath } from '../../../linux/paths/byte-path.ts';
import { MAX_DEPTH } from '../../../linux/paths/paths.ts';
import { ArchivedTree } from '../../../services/files/archived-tree.ts';
import { Links } from '../../../services/files/links.ts';
import { BLOCK, BlockWriter } from '../format/block-writer.ts';
import { writeHeader } from '../format/header-writer.ts';
import { headerOfEntry, recordsOf, TYPES } from './entry-header.ts';
import { packContent } from './file-content.ts';

/**
 * Packs the directory at an absolute path, which may be a symbolic link, and everything below it as an archive (tar,
 * pax), in chunks that own their memory. Links below it are not followed. Sockets, and entries that vanish meanwhile,
 * are left out. Of mounted file systems of the kernel (proc, sysfs, …) the archive has only the mount point. When
 * something could not be read, the archive is completed and the generator throws `aborted`. Throws `not_found` and
 * `invalid_argument` before the first chunk.
 */
export async function* packDirectory(path: string, lanes: Lanes): AsyncGenerator<Buffer> {
  await using tree = await ArchivedTree.open(path, lanes);
  yield* new Packer(tree).pack();
}

class Packer {
  readonly #tree: ArchivedTree;
  readonly #out = new BlockWriter();
  readonly #links = new Links();

  constructor(tree: ArchivedTree) {
    this.#tree = tree;
  }

  async *pack(): AsyncGenerator<Buffer> {
    const { root: reader } = this.#tree;
    const status = await statusOfFile(reader.file);
    const root = { ...status, name: '.', link: '', attributes: [], content: null };
    writeHeader(this.#out, headerOfEntry(root, './', '5', 0), recordsOf(await attributesOf(reader.file)));
    yield* this.#directory(reader, '.', status.device, 1);
    for (let left = 2 * BLOCK; left > 0; ) left -= this.#out.zeros(left);
    yield* this.#out.takeFull();
    yield this.#out.takeRest();
    this.#tree.throwIfIncomplete();
  }

  /** Packs the entries of a directory whose path is `path`. Of each batch, directories come last. */
  async *#directory(
    reader: DirectoryReader,
    path: BytePath,
    device: bigint,
    depth: number,
  ): AsyncGenerator<Buffer> {
    let reading = this.#next(reader, path);
    for (let batch = await reading; batch.length > 0; batch = await reading) {
      const below = batch.filter(isDirectory).map(withoutAttributes);
      // One batch is in memory at each level. So the next batch is read early only if there are no levels below.
      if (below.length === 0) reading = catchLater(this.#next(reader, path));
      yield* this.#files(reader, path, batch);
      batch = [];
      for (const entry of below) yield* this.#below(reader, entry, `${path}/${entry.name}`, device, depth);
      if (below.length > 0) reading = this.#next(reader, path);
    }
  }

  async *#files(
    reader: DirectoryReader,
    path: BytePath,
    batch: readonly FullEntry[],
  ): AsyncGenerator<Buffer> {
    for (const entry of batch) {
      const name = `${path}/${entry.name}`;
      if (!isDirectory(entry) && !this.#write(entry, name)) yield* this.#large(reader, entry, name);
      if (this.#out.isFull) yield* this.#out.takeFull();
    }
  }

  async #next(reader: DirectoryReader, path: BytePath): Promise<FullEntry[]> {
    return (await this.#attempt(path, () => reader.next())) ?? [];
  }

  async *#below(
    parent: DirectoryReader,
    entry: Subdirectory,
    path: BytePath,
    device: bigint,
    depth: number,
  ): AsyncGenerator<Buffer> {
    const reader = await this.#attempt(path, () => parent.openDirectory(entry.name));
    if (!reader) return;
    await using _ = reader;
    const attributes = entry.hasAttributes
      ? ((await this.#attempt(path, () => attributesOf(reader.file))) ?? [])
      : [];
    writeHeader(this.#out, headerOfEntry(entry, `${path}/`, '5', 0), recordsOf(attributes));
    if (entry.device !== device && (await this.#tree.isPseudo(reader))) return;
    if (depth === MAX_DEPTH) return this.#fail(path, `directory is more than ${MAX_DEPTH} levels deep`);
    yield* this.#directory(reader, path, entry.device, depth + 1);
  }

  /** Writes an entry. Returns false when its content has to be read first. */
  #write(entry: FullEntry, name: BytePath): boolean {
    const type = TYPES[fileTypeOf(entry.mode)];
    if (entry.mode === 0) this.#fail(name, 'entry could not be read');
    // The entry is a socket.
    if (type === undefined) return true;
    const earlier = type === '0' ? this.#links.earlier(entry, name) : null;
    if (earlier !== null) writeHeader(this.#out, { ...headerOfEntry(entry, name, '1', 0), link: earlier });
    else if (type !== '0') writeHeader(this.#out, headerOfEntry(entry, name, type, 0));
    else if (entry.content !== null) this.#small(entry, name, entry.content);
    else return false;
    return true;
  }

  #small(entry: FullEntry, name: BytePath, content: Buffer): void {
    writeHeader(this.#out, headerOfEntry(entry, name, '0', content.length), recordsOf(entry.attributes));
    this.#out.bytes(content);
    this.#out.pad();
  }

  async *#large(reader: DirectoryReader, entry: FullEntry, name: BytePath): AsyncGenerator<Buffer> {
    const file = await this.#attempt(name, () => reader.openFile(entry.name));
    if (!file) return this.#links.forget(entry);
    await using _ = file;
    const now = await statusOfFile(file);
    if (fileTypeOf(now.mode) !== constants.S_IFREG || now.inode !== entry.inode)
      return this.#links.forget(entry);
    writeHeader(this.#out, headerOfEntry(entry, name, '0', now.size), recordsOf(entry.attributes));
    if (!(yield* packContent(this.#out, file, now.size)))
      this.#fail(name, 'file was truncated, or could not be read');
  }

  /** Paths in the archive begin with a dot, which is the root. */
  #attempt<T>(path: BytePath, step: () => Promise<T>): Promise<T | null> {
    return this.#tree.attempt(path.slice(1), step);
  }

  #fail(path: BytePath, problem: string): void {
    this.#tree.fail(path.slice(1), problem);
  }
}

/** Describes a directory of a batch. Its attributes are read again, since keeping them would keep the whole batch. */
type Subdirectory = FullEntry & { readonly hasAttributes: boolean };

function withoutAttributes(entry: FullEntry): Subdirectory {
  return { ...entry, attributes: [], hasAttributes: entry.attributes.length > 0 };
}

function isDirectory({ mode }: FullEntry): boolean {
  return fileTypeOf(mode) === constants.S_IFDIR;
}

/** Marks a rejection as handled, because nobody may be left to handle it. */
function catchLater<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => {});
  return promise;
}
