import type { BytePath } from '../../../linux/paths/byte-path.ts';
import type { Directory } from './directory.ts';

const MAX_RENAMES = 16;

/** An IN_MOVED_FROM event. */
export interface Rename {
  readonly directory: Directory;
  readonly name: BytePath;
  /** The old path, relative to the root; null: too long to be told. */
  readonly path: BytePath | null;
  /** Whether it is a directory of the tree. */
  readonly isFollowed: boolean;
}

/** Renames in progress, and those that may be part of an exchange (RENAME_EXCHANGE), called candidates. */
export class Renames {
  /** The last renames without IN_MOVED_TO, by cookie. */
  readonly #halves = new Map<number, Rename>();
  /** By directory and name of the old path. */
  readonly #candidates = new Map<Directory, Map<BytePath, Rename>>();
  #last: { readonly from: BytePath | null; readonly to: BytePath | null } | null = null;

  add(cookie: number, rename: Rename): void {
    this.#halves.set(cookie, rename);
    for (const oldest of this.#halves.keys()) {
      if (this.#halves.size <= MAX_RENAMES) break;
      this.#halves.delete(oldest);
    }
  }

  take(cookie: number): Rename | null {
    const rename = this.#halves.get(cookie) ?? null;
    this.#halves.delete(cookie);
    return rename;
  }

  /** Whether a move is the reverse of the one before, as the kernel reports an exchange. */
  isReverse(rename: Rename, to: BytePath | null): boolean {
    const last = this.#last;
    this.#last = { from: rename.path, to };
    return to !== null && last?.from === to && last.to === rename.path;
  }

  addCandidate(rename: Rename): void {
    const names = this.#candidates.get(rename.directory) ?? new Map<BytePath, Rename>();
    names.set(rename.name, rename);
    this.#candidates.set(rename.directory, names);
  }

  /** Drops the candidate with this old path: another event explains the entry that exists there. */
  dropCandidate(directory: Directory, name: BytePath): void {
    const names = this.#candidates.get(directory);
    names?.delete(name);
    if (names?.size === 0) this.#candidates.delete(directory);
  }

  /** Whether a candidate has not been dropped. */
  isCandidate(rename: Rename): boolean {
    return this.#candidates.get(rename.directory)?.get(rename.name) === rename;
  }
}
