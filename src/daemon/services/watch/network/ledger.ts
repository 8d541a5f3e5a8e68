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
  /** The names in each directory, because a search of all entries for what is below one would take too long. */
  readonly #inside = new Map<BytePath, Set<BytePath>>();

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
    this.#link(name);
  }

  /** Removes an entry and all below it; returns them with the rest of their names. */
  remove(name: BytePath): [BytePath, Known][] {
    const removed: [BytePath, Known][] = [];
    const names = [name];
    for (const each of names) {
      const known = this.#entries.get(each);
      if (known) removed.push([each.slice(name.length), known]);
      for (const below of this.#inside.get(each) ?? []) names.push(below);
      this.#inside.delete(each);
      this.#delete(each);
    }
    this.#unlink(name);
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
    this.#inside.clear();
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

  /** Enters a name in its directory, and that one in its own, because events can be reported below an unknown directory. */
  #link(name: BytePath): void {
    for (let at = name; at !== ''; ) {
      const directory = directoryOf(at);
      const names = this.#inside.get(directory);
      if (names?.has(at)) return;
      if (names) names.add(at);
      else this.#inside.set(directory, new Set([at]));
      at = directory;
    }
  }

  /** Undoes `#link`. */
  #unlink(name: BytePath): void {
    for (let at = name; at !== '' && !this.#entries.has(at) && !this.#inside.has(at); ) {
      const directory = directoryOf(at);
      const names = this.#inside.get(directory);
      names?.delete(at);
      if (names?.size === 0) this.#inside.delete(directory);
      at = directory;
    }
  }

  #delete(name: BytePath): void {
    const known = this.#entries.get(name);
    if (!known) return;
    this.#entries.delete(name);
    if (this.#names.get(known.inode) === name) this.#names.delete(known.inode);
  }
}

function directoryOf(name: BytePath): BytePath {
  return name.slice(0, Math.max(0, name.lastIndexOf('/')));
}

function nullIfMissing(error: unknown): null {
  if (isSystemError(error, 'ENOENT', 'ENOTDIR')) return null;
  throw error;
}
