import { lstat, readdir } from 'node:fs/promises';
import { isSystemError } from '../../../../base/errors.ts';
import { monotonicMs } from '../../../../base/monotonic.ts';
import { type BytePath, bytePath, joinBytes, pathBuffer } from '../../../linux/paths/byte-path.ts';
import type { TreeChange, WatchEventType } from '../local/event.ts';

/** The state of an entry when it was last reported. */
interface Known {
  readonly inode: number;
  readonly isDirectory: boolean;
  readonly size: number;
  readonly modifiedMs: number;
  /** Permissions, owner and group as one text, which is only compared. */
  readonly rights: string;
}

/** Stands for the state of an entry that was removed before it could be checked. */
const UNSEEN: Known = { inode: 0, isDirectory: false, size: 0, modifiedMs: 0, rights: '' };

/** Entries that were taken out, by the rest of their names. A directory comes before what is in it. */
type Taken = readonly (readonly [BytePath, Known])[];

/**
 * The state of a tree as it was reported to the reader. It merges events of inotify with changes that polling found: what is
 * in it already is not reported again. Names are relative to the root of the tree.
 */
export class Ledger {
  readonly #root: BytePath;
  /** The entries of each directory, by their whole names. Those of all in one map would have to be searched for a removal. */
  readonly #directories = new Map<BytePath, Map<BytePath, Known>>();
  /** A name of each inode, which may have several. */
  readonly #names = new Map<number, BytePath>();
  /** Entries that did not exist when they were checked, and the time of that check. */
  readonly #missing = new Map<BytePath, number>();
  /** The last entry that inotify reported as renamed, until its new name is reported. */
  #renamed: { readonly name: BytePath; readonly taken: Taken } | null = null;
  #size = 0;
  #changes: TreeChange[] = [];

  constructor(root: BytePath) {
    this.#root = root;
  }

  get size(): number {
    return this.#size;
  }

  /** The number of changes that `take` would return. */
  get waiting(): number {
    return this.#changes.length;
  }

  take(): TreeChange[] {
    const changes = this.#changes;
    this.#changes = [];
    return changes;
  }

  names(): BytePath[] {
    return [...this.#directories.values()].flatMap((entries) => [...entries.keys()]);
  }

  /** Replaces the content by the current state of the file system. Stops after `limit` entries and one. */
  async fill(recursive: boolean, limit: number): Promise<void> {
    this.#directories.clear();
    this.#names.clear();
    this.#size = 0;
    const directories: BytePath[] = [''];
    for (const directory of directories) {
      const path = pathBuffer(joinBytes(this.#root, directory));
      for (const each of (await readdir(path, { encoding: 'buffer' }).catch(nullIfMissing)) ?? []) {
        const name = joinBytes(directory, bytePath(each));
        const now = await this.#statusOf(name);
        if (!now) continue;
        this.#set(name, now);
        if (this.#size > limit) return;
        if (now.isDirectory && recursive) directories.push(name);
      }
    }
  }

  /** Applies a change that inotify reported. */
  async applyInotify(change: TreeChange): Promise<void> {
    const { type, directory, name: base, movedFrom } = change;
    const name = joinBytes(directory, base);
    if (base === '.') this.#changes.push(change);
    else if (type === 'create') await this.#created(name, movedFrom);
    else if (type === 'remove' || type === 'rename') this.#left(type, name);
    else {
      this.#report(type, name);
      const now = await this.#statusOf(name);
      if (now && this.#get(name)) this.#set(name, now);
    }
  }

  /** Checks an entry that polling found changed. */
  async check(name: BytePath): Promise<void> {
    const now = await this.#statusOf(name);
    const was = this.#get(name);
    if (!now) {
      if (was && !this.#missing.has(name)) this.#missing.set(name, monotonicMs());
      return;
    }
    this.#missing.delete(name);
    if (was?.inode === now.inode) this.#compare(name, was, now);
    else {
      if (was) this.#remove(name);
      await this.#appeared(name, now);
    }
  }

  /** Reports entries as removed that have been missing for `afterMs`. */
  expire(afterMs: number): void {
    const now = monotonicMs();
    for (const [name, since] of this.#missing) {
      if (now - since < afterMs) continue;
      this.#missing.delete(name);
      this.#remove(name);
    }
  }

  #report(type: WatchEventType, name: BytePath, movedFrom: BytePath | null = null): void {
    this.#changes.push({ type, directory: '', name, movedFrom });
  }

  async #created(name: BytePath, movedFrom: BytePath | null): Promise<void> {
    const now = await this.#statusOf(name);
    // It was reported already, when polling found it or its directory.
    if (movedFrom === null && now && this.#get(name)?.inode === now.inode) return;
    this.#takeOut(name);
    this.#report('create', name, movedFrom);
    const renamed = this.#renamed;
    this.#renamed = null;
    this.#put(name, now ?? UNSEEN, renamed?.name === movedFrom ? renamed.taken : []);
  }

  #left(type: 'remove' | 'rename', name: BytePath): void {
    this.#missing.delete(name);
    // It was reported already, when polling found it.
    if (!this.#get(name)) return;
    const taken = this.#takeOut(name);
    this.#report(type, name);
    if (type === 'rename') this.#renamed = { name, taken };
  }

  async #appeared(name: BytePath, now: Known): Promise<void> {
    const from = this.#names.get(now.inode);
    const isMoved = from !== undefined && (await this.#statusOf(from))?.inode !== now.inode;
    if (isMoved) {
      this.#missing.delete(from);
      this.#report('rename', from);
    }
    this.#report('create', name, isMoved ? from : null);
    this.#put(name, now, isMoved ? this.#takeOut(from) : []);
  }

  #compare(name: BytePath, was: Known, now: Known): void {
    const isWritten = was.size !== now.size || was.modifiedMs !== now.modifiedMs;
    // The modification time of a directory tells of changes of its entries, which are reported for each entry.
    if (isWritten && !now.isDirectory) this.#report('write', name);
    if (was.rights !== now.rights) this.#report('chmod', name);
    this.#set(name, now);
  }

  /** Reports a removal. The entries of a directory come before it. */
  #remove(name: BytePath): void {
    for (const [rest] of this.#takeOut(name).toReversed()) this.#report('remove', name + rest);
  }

  /** Returns the current state of `name` in the file system, or null when it does not exist. */
  async #statusOf(name: BytePath): Promise<Known | null> {
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

  #get(name: BytePath): Known | undefined {
    return this.#directories.get(directoryOf(name))?.get(name);
  }

  #set(name: BytePath, known: Known): void {
    this.#delete(name);
    const directory = directoryOf(name);
    const entries = this.#directories.get(directory) ?? new Map<BytePath, Known>();
    this.#directories.set(directory, entries.set(name, known));
    this.#names.set(known.inode, name);
    this.#size++;
  }

  /** Sets the state of an entry, and puts entries that were taken out from another name below it. */
  #put(name: BytePath, known: Known, taken: Taken): void {
    for (const [rest, each] of taken) this.#set(name + rest, each);
    this.#set(name, known);
  }

  /** Takes out an entry and all below it. */
  #takeOut(name: BytePath): Taken {
    const taken: [BytePath, Known][] = [];
    const names = [name];
    for (const each of names) {
      for (const below of this.#directories.get(each)?.keys() ?? []) names.push(below);
      const known = this.#delete(each);
      if (known) taken.push([each.slice(name.length), known]);
    }
    return taken;
  }

  #delete(name: BytePath): Known | undefined {
    const directory = directoryOf(name);
    const entries = this.#directories.get(directory);
    const known = entries?.get(name);
    if (!entries || !known) return undefined;
    entries.delete(name);
    if (entries.size === 0) this.#directories.delete(directory);
    if (this.#names.get(known.inode) === name) this.#names.delete(known.inode);
    this.#size--;
    return known;
  }
}

function directoryOf(name: BytePath): BytePath {
  return name.slice(0, Math.max(0, name.lastIndexOf('/')));
}

function nullIfMissing(error: unknown): null {
  if (isSystemError(error, 'ENOENT', 'ENOTDIR')) return null;
  throw error;
}
