import { lstat, readdir } from 'node:fs/promises';
import { isSystemError } from '../../../../base/errors.ts';
import { type BytePath, bytePath, joinBytes, pathBuffer } from '../../../linux/paths/byte-path.ts';

/** The state of an entry when it was last reported. */
export interface Known {
  readonly inode: number;
  readonly isDirectory: boolean;
  readonly size: number;
  readonly modifiedMs: number;
  /** Permissions, owner and group as one text, which is only compared. */
  readonly rights: string;
}

/** The state of a tree as it was reported to the reader, by names relative to its root. */
export class Ledger {
  readonly #root: BytePath;
  readonly #entries = new Map<BytePath, Known>();
  readonly #names = new Map<number, BytePath>();

  constructor(root: BytePath) {
    this.#root = root;
  }

  get size(): number {
    return this.#entries.size;
  }

  get(name: BytePath): Known | undefined {
    return this.#entries.get(name);
  }

  /** Returns a name of an inode, which may have several. */
  nameOf(inode: number): BytePath | undefined {
    return this.#names.get(inode);
  }

  names(): BytePath[] {
    return [...this.#entries.keys()];
  }

  set(name: BytePath, known: Known): void {
    this.#delete(name);
    this.#entries.set(name, known);
    this.#names.set(known.inode, name);
  }

  /** Removes an entry and all below it; returns them with the rest of their names. */
  remove(name: BytePath): [BytePath, Known][] {
    const prefix = `${name}/`;
    const removed: [BytePath, Known][] = [];
    for (const [each, known] of this.#entries) {
      if (each !== name && !each.startsWith(prefix)) continue;
      removed.push([each.slice(name.length), known]);
      this.#delete(each);
    }
    return removed;
  }

  /** Inserts entries that `remove` returned, at `name`. */
  insert(name: BytePath, entries: readonly [BytePath, Known][]): void {
    for (const [rest, known] of entries) this.set(name + rest, known);
  }

  /** Returns the current state of `name` in the file system, or null when it does not exist. */
  async look(name: BytePath): Promise<Known | null> {
    const path = pathBuffer(joinBytes(this.#root, name));
    const status = await lstat(path).catch(nullIfMissing);
    if (!status) return null;
    return {
      inode: status.ino,
      isDirectory: status.isDirectory(),
      size: status.size,
      modifiedMs: status.mtimeMs,
      rights: `${status.mode}:${status.uid}:${status.gid}`,
    };
  }

  /** Replaces the content by the current state of the file system. Stops after `limit` entries and one. */
  async fill(recursive: boolean, limit: number): Promise<void> {
    this.#entries.clear();
    this.#names.clear();
    const directories: BytePath[] = [''];
    for (const directory of directories) {
      const path = pathBuffer(joinBytes(this.#root, directory));
      for (const each of (await readdir(path, { encoding: 'buffer' }).catch(nullIfMissing)) ?? []) {
        const name = joinBytes(directory, bytePath(each));
        const known = await this.look(name);
        if (!known) continue;
        this.set(name, known);
        if (this.size > limit) return;
        if (known.isDirectory && recursive) directories.push(name);
      }
    }
  }

  #delete(name: BytePath): void {
    const known = this.#entries.get(name);
    if (!known) return;
    this.#entries.delete(name);
    if (this.#names.get(known.inode) === name) this.#names.delete(known.inode);
  }
}

function nullIfMissing(error: unknown): null {
  if (isSystemError(error, 'ENOENT', 'ENOTDIR')) return null;
  throw error;
}
