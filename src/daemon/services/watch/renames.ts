import type { BytePath } from '../../os/byte-path.ts';
import type { Directory } from './directory.ts';

const MAX_RENAMES = 16;

/** An IN_MOVED_FROM event. */
export interface Rename {
  readonly directory: Directory;
  readonly name: BytePath;
  /** The old path, relative to the root. */
  readonly path: BytePath;
  /** Whether it is a directory of the tree. */
  readonly isFollowed: boolean;
}

/** Renames in progress, and those that may be part of an exchange (RENAME_EXCHANGE), called candidates. */
export class Renames {
  /** The last renames without IN_MOVED_TO, by cookie. */
  readonly #halves = new Map<number, Rename>();
  readonly #candidates = new Set<Rename>();
  #last: { readonly from: BytePath; readonly to: BytePath } | null = null;

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
  isReverse(rename: Rename, to: BytePath): boolean {
    const last = this.#last;
    this.#last = { from: rename.path, to };
    return last?.from === to && last.to === rename.path;
  }

  addCandidate(rename: Rename): void {
    this.#candidates.add(rename);
  }

  /** Drops candidates with this old path: another event explains the entry that exists there. */
  dropCandidates(directory: Directory, name: BytePath): void {
    for (const candidate of this.#candidates) {
      if (candidate.directory === directory && candidate.name === name) this.#candidates.delete(candidate);
    }
  }

  /** Removes a candidate; false when it has been dropped. */
  takeCandidate(rename: Rename): boolean {
    return this.#candidates.delete(rename);
  }
}
