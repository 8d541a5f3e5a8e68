import type { Readable } from 'node:stream';
import { Failure } from '../output/failure.ts';

/** The kinds of items. `other` is a fifo, a socket or a device, which is not transferred. */
export type ItemKind = 'file' | 'directory' | 'link' | 'other';

/** An item of a tree. `names` lead to it from the root; for the root itself they are empty. */
export interface TreeItem {
  readonly names: readonly string[];
  readonly kind: ItemKind;
  /** The size in bytes. */
  readonly size: number;
  /** The permission bits of the mode. */
  readonly mode: number;
  /** The modification time, in milliseconds since 1970. */
  readonly modified: number;
  /** The text of a local link, or null for anything else and for links in a sandbox. */
  readonly target: string | null;
  /** Identifies a local file that has several names. It is null for anything else, and in a sandbox. */
  readonly identity: string | null;
  /** Says whether a local file has holes, which take no space on its disk. */
  readonly isSparse: boolean;
}

/** Returns those items of one directory that are walked over. */
export type Select = (items: readonly TreeItem[]) => Promise<readonly TreeItem[]>;

/** A tree that can be read. */
export interface SourceTree {
  /** Messages use this text for the tree. */
  readonly label: string;
  /** Returns the root, or null if there is none. Follows a link at the root. */
  root(): Promise<TreeItem | null>;
  /** Yields all selected items below the root, and each directory before its content. Follows no link. */
  walk(select?: Select): AsyncGenerator<TreeItem>;
  open(item: TreeItem): Promise<Readable>;
  /** Returns the SHA-256 of a file in base64. Returns null if that would mean to download the whole file. */
  digest(item: TreeItem): Promise<string | null>;
  /** Yields when the tree is watched, and after each change. Ends when the root is removed or renamed. */
  changes(signal: AbortSignal): AsyncGenerator<unknown>;
}

/** A tree that can be written. */
export interface DestinationTree {
  readonly label: string;
  root(): Promise<TreeItem | null>;
  walk(select?: Select): AsyncGenerator<TreeItem>;
  makeDirectory(names: readonly string[]): Promise<void>;
  /** Writes a file to `names`. The file appears there only when it is complete. */
  write(names: readonly string[], item: TreeItem, content: Readable): Promise<void>;
  remove(names: readonly string[]): Promise<void>;
  /** Returns whether `setMode` works. Not every daemon can do that. */
  keepsModes(): Promise<boolean>;
  /** Sets the permission bits of a file or a directory. */
  setMode(names: readonly string[], mode: number): Promise<void>;
  digest(item: TreeItem): Promise<string | null>;
}

/** Directories may be nested to this depth, because a hostile daemon could invent an endless tree. */
const MAX_DEPTH = 256;
/** Linux allows names of this length (NAME_MAX, limits.h). */
const MAX_NAME_BYTES = 255;
/** Linux allows paths of this length (PATH_MAX, limits.h). */
const MAX_PATH_BYTES = 4096;

/** Throws `Failure` for an invalid name: one that is empty, leads elsewhere, or is longer than Linux allows. */
export function requireName(name: string, label: string): void {
  const isBad = name === '' || name === '.' || name === '..' || /[/\0]/.test(name);
  if (isBad || Buffer.byteLength(name) > MAX_NAME_BYTES * 3)
    throw new Failure('failed', `${label} lists a name that is none: '${name.slice(0, 80)}'`);
}

/** Throws `Failure` for a tree that is too deep. */
export function requireDepth(names: readonly string[], label: string): void {
  if (names.length > MAX_DEPTH || Buffer.byteLength(names.join('/')) > MAX_PATH_BYTES)
    throw new Failure(
      'failed',
      `${label} has more than ${MAX_DEPTH} directories within each other, or a path that is too long`,
    );
}

/** Returns all selected items below the root of a tree. */
export async function itemsOf(tree: SourceTree, select?: Select): Promise<TreeItem[]> {
  const items: TreeItem[] = [];
  for await (const item of tree.walk(select)) {
    if (items.length >= 5_000_000)
      throw new Failure('failed', `${tree.label} has more than 5,000,000 entries`);
    items.push(item);
  }
  return items;
}
