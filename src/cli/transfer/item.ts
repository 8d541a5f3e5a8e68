import type { Readable } from 'node:stream';
import { Failure } from '../output/failure.ts';

/** The kinds that are transferred; `other`: a fifo, a socket or a device. */
export type ItemKind = 'file' | 'directory' | 'link' | 'other';

/** Something in a tree; `names` lead to it from the root of the tree, and are none for the root. */
export interface TreeItem {
  readonly names: readonly string[];
  readonly kind: ItemKind;
  /** In bytes. */
  readonly size: number;
  /** The permission bits. */
  readonly mode: number;
  /** In milliseconds since 1970. */
  readonly modified: number;
  /** What a local link leads to, as it is written in the link; null for anything else, and for links of a sandbox. */
  readonly target: string | null;
}

/** A tree that is read from. */
export interface SourceTree {
  /** For messages. */
  readonly label: string;
  /** The root, with a link at its place followed; null when there is none. */
  root(): Promise<TreeItem | null>;
  /** Everything below the root, directories before what is in them. No link is followed. */
  walk(): AsyncGenerator<TreeItem>;
  open(item: TreeItem): Promise<Readable>;
  /** SHA-256 of a file in base64; null when it cannot be had without reading all of it from afar. */
  digest(item: TreeItem): Promise<string | null>;
}

/** A tree that is written to. */
export interface DestinationTree {
  readonly label: string;
  root(): Promise<TreeItem | null>;
  walk(): AsyncGenerator<TreeItem>;
  makeDirectory(names: readonly string[]): Promise<void>;
  /** Writes a file, which appears at once; `names` are those of the destination. */
  write(names: readonly string[], item: TreeItem, content: Readable): Promise<void>;
  remove(names: readonly string[]): Promise<void>;
  digest(item: TreeItem): Promise<string | null>;
}

/** Directories within each other, and bytes of a name: a tree that a daemon makes up has no end. */
const MAX_DEPTH = 256;
const MAX_NAME_BYTES = 255;
const MAX_PATH_BYTES = 4096;

/** Throws for a name that is none: it is empty, leads elsewhere, or is longer than Linux allows. */
export function requireName(name: string, label: string): void {
  const isBad = name === '' || name === '.' || name === '..' || /[/\0]/.test(name);
  if (isBad || Buffer.byteLength(name) > MAX_NAME_BYTES * 3)
    throw new Failure('failed', `${label} lists a name that is none: '${name.slice(0, 80)}'`);
}

/** Throws for a tree that is too deep to be one. */
export function requireDepth(names: readonly string[], label: string): void {
  if (names.length > MAX_DEPTH || Buffer.byteLength(names.join('/')) > MAX_PATH_BYTES)
    throw new Failure(
      'failed',
      `${label} has more than ${MAX_DEPTH} directories within each other, or a path that is too long`,
    );
}
