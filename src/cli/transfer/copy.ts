import { join } from 'node:path';
import { failureOf } from '../connection/failures.ts';
import type { Failure } from '../output/failure.ts';
import type { Progress } from '../output/progress.ts';
import { counting } from './counting.ts';
import { groupByFile } from './file-names.ts';
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
  /** Is called for each item that fails, and the others go on. If it is absent, the first error ends the copy. */
  readonly fail?: (item: TreeItem, failure: Failure) => void;
  /** Is called for each item that was transferred. */
  readonly done?: (item: TreeItem) => void;
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
    const { progress } = this.#options;
    progress.expect(item.size);
    const [source, destination] = [this.#source, this.#destination];
    if (
      item.isSparse &&
      source instanceof LocalTree &&
      destination instanceof RemoteTree &&
      (await destination.takesArchiveAt(names))
    ) {
      // The daemon makes holes of the zeros in an archive only.
      const [parent, name] = destination.above(names);
      await uploadArchive(source, [item], parent, progress, () => name);
      this.#count(item);
    } else await this.#copy(item, names);
  }

  /** Copies everything below the root of the source, which has these items. Throws `Failure`. */
  async tree(items: readonly TreeItem[]): Promise<void> {
    const wanted = this.#expect(items);
    const [source, destination] = [this.#source, this.#destination];
    if (source instanceof RemoteTree && destination instanceof LocalTree && (await source.keepsModes()))
      return this.#fromArchive(source, destination, wanted);
    await this.#copyAll(wanted);
  }

  /** Copies items of the source to the same names at the destination. Throws `Failure`. */
  async items(items: readonly TreeItem[]): Promise<void> {
    await this.#copyAll(this.#expect(items));
  }

  /** Gives items at the destination the modes that they have here. Inner ones come first, while a directory lets us in. */
  async setModes(items: readonly TreeItem[]): Promise<void> {
    for (const item of items.toReversed())
      await this.#attempt(item, () => this.#destination.setMode(item.names, item.mode));
  }

  #expect(items: readonly TreeItem[]): TreeItem[] {
    const wanted = items.filter((item) => this.#isKnown(item));
    for (const { kind, size } of wanted) if (kind === 'file') this.#options.progress.expect(size);
    return wanted;
  }

  async #copyAll(items: readonly TreeItem[]): Promise<void> {
    const [source, destination] = [this.#source, this.#destination];
    if (source instanceof LocalTree && destination instanceof RemoteTree && (await destination.keepsModes()))
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

  /** A large file does not go in parts if these cannot keep what it has: holes, or several names. */
  async #byArchive(source: LocalTree, destination: RemoteTree, items: readonly TreeItem[]): Promise<void> {
    const counts = Map.groupBy(items, ({ identity }) => identity);
    const hasOneName = ({ identity }: TreeItem) => identity === null || counts.get(identity)?.length === 1;
    const isLarge = (item: TreeItem) =>
      item.kind === 'file' && item.size > PART_BYTES && !item.isSparse && hasOneName(item);
    await this.#inArchives(
      source,
      destination,
      items.filter((item) => !isLarge(item)),
    );
    const large = items.filter(isLarge);
    for (const item of large) await this.#attempt(item, () => this.#copy(item, item.names));
    await this.setModes(large);
  }

  /** An archive with an item that fails is sent again in halves, until the item is alone. */
  async #inArchives(source: LocalTree, destination: RemoteTree, items: readonly TreeItem[]): Promise<void> {
    const [first] = items;
    if (!first) return;
    const send = async () => {
      await uploadArchive(source, items, destination, this.#options.progress);
      for (const item of items) this.#count(item);
    };
    if (items.length === 1) return this.#attempt(first, send);
    try {
      await send();
    } catch (error) {
      if (!this.#options.fail || !isOfItem(failureOf(error, destination.connection.target.name))) throw error;
      const half = Math.ceil(items.length / 2);
      await this.#inArchives(source, destination, items.slice(0, half));
      await this.#inArchives(source, destination, items.slice(half));
    }
  }

  async #oneByOne(items: readonly TreeItem[]): Promise<void> {
    for (const item of items) {
      if (item.kind === 'directory')
        await this.#attempt(item, async () => {
          await this.#destination.makeDirectory(item.names);
          this.#count(item);
        });
    }
    const files = items.filter(({ kind, names, target }) => {
      if (kind === 'link')
        this.#skip({ kind, names, target } as TreeItem, 'a link, which this daemon cannot make');
      return kind === 'file';
    });
    const { parallel } = this.#options;
    const groups = await groupByFile(files, this.#source, this.#destination, parallel);
    await inParallel(groups, parallel, (names) => this.#file(names));
    if (await this.#destination.keepsModes())
      await this.setModes(items.filter(({ kind }) => kind === 'directory'));
  }

  /** Copies a file under its first name, and links the others to it. */
  async #file(names: readonly TreeItem[]): Promise<void> {
    const destination = this.#destination;
    let first: TreeItem | null = null;
    for (const item of names)
      await this.#attempt(item, async () => {
        if (first && destination instanceof LocalTree) return this.#link(destination, item, first);
        await this.#copy(item, item.names);
        first = item;
      });
  }

  async #link(destination: LocalTree, item: TreeItem, first: TreeItem): Promise<void> {
    await destination.link(item.names, first.names);
    this.#options.progress.advance(item.size, nameOf(this.#source, item));
    this.#count(item);
  }

  async #attempt(item: TreeItem, step: () => Promise<void>): Promise<void> {
    const { fail } = this.#options;
    if (!fail) return step();
    try {
      await step();
    } catch (error) {
      const failure = failureOf(error, 'the daemon');
      if (!isOfItem(failure)) throw failure;
      fail(item, failure);
    }
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
      const counted = counting(content, item.size, nameOf(source, item), progress);
      // What cannot be written would keep its connection, because nobody has begun to read it.
      await destination.write(names, item, counted).finally(() => content.destroy());
    }
    this.#count(item);
  }

  #isKnown(item: TreeItem): boolean {
    if (canTransfer(item)) return true;
    this.#skip(
      item,
      item.kind === 'link' ? 'a link' : 'neither a file nor a directory, or of a name that is not UTF-8',
    );
    return false;
  }

  #skip(item: TreeItem, why: string): void {
    this.result.skipped++;
    this.#options.skip(item, why);
  }

  #count(item: TreeItem): void {
    const { kind, size } = item;
    this.#options.done?.(item);
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

/** Returns whether an item can be made elsewhere. */
export function canTransfer({ kind, target }: TreeItem): boolean {
  return kind === 'link' ? target !== null : kind !== 'other';
}

/** Returns whether a failure concerns one item, so that others may succeed. */
export function isOfItem({ reason }: Failure): boolean {
  return reason === 'failed' || reason === 'not_found' || reason === 'refused';
}
