import { monotonicMs } from '../../../../base/monotonic.ts';
import { type BytePath, joinBytes } from '../../../linux/paths/byte-path.ts';
import type { TreeChange, WatchEventType } from '../local/event.ts';
import type { Known, Ledger } from './ledger.ts';

/** Stands for the state of an entry that was removed before it could be checked. */
const UNSEEN: Known = { inode: 0, isDirectory: false, size: 0, modifiedMs: 0, rights: '' };

/** Merges events of inotify with changes that polling found. A state in the ledger was reported already. */
export class Reconciler {
  readonly #ledger: Ledger;
  /** Entries that did not exist when they were checked, and the time of that check. */
  readonly #missing = new Map<BytePath, number>();
  /** The last entry that inotify reported as renamed, until its new name is reported. */
  #renamed: { readonly name: BytePath; readonly entries: [BytePath, Known][] } | null = null;

  #changes: TreeChange[] = [];

  constructor(ledger: Ledger) {
    this.#ledger = ledger;
  }

  get size(): number {
    return this.#changes.length;
  }

  /** Takes the changes that have been found since the last call. */
  take(): TreeChange[] {
    const changes = this.#changes;
    this.#changes = [];
    return changes;
  }

  /** Applies a change of an entry that inotify reported. */
  async applyInotify({ type, directory, name: entry, movedFrom }: TreeChange): Promise<void> {
    const name = joinBytes(directory, entry);
    if (type === 'create') await this.#created(name, movedFrom);
    else if (type === 'remove' || type === 'rename') this.#left(type, name);
    else {
      this.#tell(type, name);
      const now = await this.#ledger.look(name);
      if (now && this.#ledger.get(name)) this.#ledger.set(name, now);
    }
  }

  passRoot(change: TreeChange): void {
    this.#changes.push(change);
  }

  /** Checks an entry that polling found changed. */
  async look(name: BytePath): Promise<void> {
    const now = await this.#ledger.look(name);
    const was = this.#ledger.get(name);
    if (!now) {
      if (was && !this.#missing.has(name)) this.#missing.set(name, monotonicMs());
      return;
    }
    this.#missing.delete(name);
    if (was && was.inode === now.inode) this.#compare(name, was, now);
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

  #tell(type: WatchEventType, name: BytePath, movedFrom: BytePath | null = null): void {
    this.#changes.push({ type, directory: '', name, movedFrom });
  }

  async #created(name: BytePath, movedFrom: BytePath | null): Promise<void> {
    const now = await this.#ledger.look(name);
    const was = this.#ledger.get(name);
    // It was reported already, when polling found it or its directory.
    if (movedFrom === null && now && was?.inode === now.inode) return;
    this.#ledger.remove(name);
    this.#tell('create', name, movedFrom);
    if (this.#renamed && this.#renamed.name === movedFrom) this.#ledger.insert(name, this.#renamed.entries);
    this.#renamed = null;
    this.#ledger.set(name, now ?? UNSEEN);
  }

  #left(type: 'remove' | 'rename', name: BytePath): void {
    this.#missing.delete(name);
    // It was reported already, when polling found it.
    if (!this.#ledger.get(name)) return;
    const entries = this.#ledger.remove(name);
    this.#tell(type, name);
    if (type === 'rename') this.#renamed = { name, entries };
  }

  async #appeared(name: BytePath, now: Known): Promise<void> {
    const from = this.#ledger.nameOf(now.inode);
    const isMoved = from !== undefined && (await this.#ledger.look(from))?.inode !== now.inode;
    if (isMoved) {
      this.#missing.delete(from);
      this.#tell('rename', from);
      this.#ledger.insert(name, this.#ledger.remove(from));
    }
    this.#tell('create', name, isMoved ? from : null);
    this.#ledger.set(name, now);
  }

  #compare(name: BytePath, was: Known, now: Known): void {
    const isWritten = was.size !== now.size || was.modifiedMs !== now.modifiedMs;
    // The modification time of a directory tells of changes of its entries, which are reported for each entry.
    if (isWritten && !now.isDirectory) this.#tell('write', name);
    if (was.rights !== now.rights) this.#tell('chmod', name);
    this.#ledger.set(name, now);
  }

  /** Reports a removal. The entries of a directory come before it. */
  #remove(name: BytePath): void {
    const entries = this.#ledger.remove(name);
    for (const [rest] of entries.sort(([a], [b]) => depth(b) - depth(a))) this.#tell('remove', name + rest);
  }
}

function depth(path: BytePath): number {
  return path.split('/').length;
}
