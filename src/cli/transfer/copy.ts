import { join } from 'node:path';
import { askState } from '../connection/daemon-state.ts';
import { Failure } from '../output/failure.ts';
import type { Progress } from '../output/progress.ts';
import { counting } from './counting.ts';
import type { DestinationTree, SourceTree, TreeItem } from './item.ts';
import { LocalTree } from './local-tree.ts';
import { PART_BYTES, uploadInParts } from './parts.ts';
import { inParallel } from './pool.ts';
import { RemoteTree } from './remote-tree.ts';
import { downloadResumable, RESUMABLE_BYTES } from './resumed-download.ts';
import { downloadArchive } from './tar-download.ts';
import { uploadArchive } from './tar-upload.ts';

/** These options say how files are transferred. */
export interface CopyOptions {
  /** At most this many transfers run at the same time. */
  readonly parallel: number;
  readonly progress: Progress;
  /** Is called for each item that is left out. */
  skip(item: TreeItem, why: string): void;
}

/** The numbers of items and bytes that were transferred. */
export interface CopyResult {
  files: number;
  directories: number;
  links: number;
  bytes: number;
  skipped: number;
}

/** Copies files and trees from one place to another, in the fastest way that both ends support. */
export class Copier {
  readonly #source: SourceTree;
  readonly #destination: DestinationTree;
  readonly #options: CopyOptions;
  readonly result: CopyResult = { files: 0, directories: 0, links: 0, bytes: 0, skipped: 0 };

  constructor(source: SourceTree, destination: DestinationTree, options: CopyOptions) {
    this.#source = source;
    this.#destination = destination;
    this.#options = options;
  }

  /** Copies the root of the source, which is a file, to `names` at the destination. Throws `Failure`. */
  async file(item: TreeItem, names: readonly string[]): Promise<void> {
    this.#options.progress.expect(item.size);
    await this.#copy(item, names);
  }

  /** Copies everything below the root of the source, which has these items. Throws `Failure`. */
  async tree(items: readonly TreeItem[]): Promise<void> {
    const wanted = this.#expect(items);
    const [source, destination] = [this.#source, this.#destination];
    if (source instanceof RemoteTree && destination instanceof LocalTree && (await hasArchives(source)))
      return this.#fromArchive(source, destination, wanted);
    await this.#copyAll(wanted);
  }

  /** Copies items of the source to the same names at the destination. Throws `Failure`. */
  async items(items: readonly TreeItem[]): Promise<void> {
    await this.#copyAll(this.#expect(items));
  }

  #expect(items: readonly TreeItem[]): TreeItem[] {
    const wanted = items.filter((item) => this.#isKnown(item));
    for (const { kind, size } of wanted) if (kind === 'file') this.#options.progress.expect(size);
    return wanted;
  }

  async #copyAll(items: readonly TreeItem[]): Promise<void> {
    const [source, destination] = [this.#source, this.#destination];
    if (source instanceof LocalTree && destination instanceof RemoteTree && (await hasArchives(destination)))
      return this.#byArchive(source, destination, items);
    await this.#oneByOne(items);
  }

  /** An archive is not used where a download that can be resumed is better. */
  async #fromArchive(source: RemoteTree, destination: LocalTree, items: readonly TreeItem[]): Promise<void> {
    const files = items.filter(({ kind }) => kind === 'file');
    const stored = new Set<TreeItem>();
    if (files.every(({ size }) => size <= RESUMABLE_BYTES)) {
      for await (const item of downloadArchive(source, files, destination, this.#options.progress)) {
        stored.add(item);
        this.#count(item);
      }
    }
    await this.#oneByOne(items.filter((item) => !stored.has(item)));
  }

  async #byArchive(source: LocalTree, destination: RemoteTree, items: readonly TreeItem[]): Promise<void> {
    const isLarge = ({ kind, size }: TreeItem) => kind === 'file' && size > PART_BYTES;
    const small = items.filter((item) => !isLarge(item));
    if (small.length > 0) await uploadArchive(source, small, destination, [], this.#options.progress);
    for (const item of small) this.#count(item);
    for (const item of items.filter(isLarge)) await this.#copy(item, item.names);
  }

  async #oneByOne(items: readonly TreeItem[]): Promise<void> {
    for (const item of items) {
      if (item.kind === 'directory') {
        await this.#destination.makeDirectory(item.names);
        this.#count(item);
      }
    }
    const files = items.filter(({ kind, names, target }) => {
      if (kind === 'link')
        this.#skip({ kind, names, target } as TreeItem, 'a link, which this daemon cannot make');
      return kind === 'file';
    });
    await inParallel(files, this.#options.parallel, (item) => this.#copy(item, item.names));
  }

  async #copy(item: TreeItem, names: readonly string[]): Promise<void> {
    const [source, destination] = [this.#source, this.#destination];
    const { progress } = this.#options;
    if (source instanceof LocalTree && destination instanceof RemoteTree && item.size > PART_BYTES)
      await uploadInParts(destination, names, join(source.label, ...item.names), item, this.#options);
    else if (source instanceof RemoteTree && destination instanceof LocalTree && item.size > RESUMABLE_BYTES)
      await downloadResumable(source, item, destination, names, progress);
    else {
      const content = await source.open(item);
      await destination.write(names, item, counting(content, item.size, nameOf(source, item), progress));
    }
    this.#count(item);
  }

  #isKnown(item: TreeItem): boolean {
    if (item.kind === 'other')
      this.#skip(item, 'neither a file nor a directory, or of a name that is not UTF-8');
    else if (item.kind === 'link' && item.target === null) this.#skip(item, 'a link');
    else return true;
    return false;
  }

  #skip(item: TreeItem, why: string): void {
    this.result.skipped++;
    this.#options.skip(item, why);
  }

  #count({ kind, size }: TreeItem): void {
    if (kind === 'directory') this.result.directories++;
    else if (kind === 'link') this.result.links++;
    else {
      this.result.files++;
      this.result.bytes += size;
    }
  }
}

function nameOf({ label }: SourceTree, { names }: TreeItem): string {
  return names.length > 0 ? names.join('/') : label;
}

/** Returns whether a daemon can pack and unpack archives. */
async function hasArchives({ connection }: RemoteTree): Promise<boolean> {
  return (await askState(connection)).hasExtensions;
}

/** Returns all items below the root of a tree. */
export async function itemsOf(tree: SourceTree): Promise<TreeItem[]> {
  const items: TreeItem[] = [];
  for await (const item of tree.walk()) {
    if (items.length >= 5_000_000)
      throw new Failure('failed', `${tree.label} has more than 5,000,000 entries`);
    items.push(item);
  }
  return items;
}
