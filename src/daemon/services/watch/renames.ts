import type { BytePath } from '../../os/byte-path.ts';
import type { Directory } from './directory.ts';

const MAX_RENAMES = 16;

/** The first half of a move. */
export interface Rename {
  readonly directory: Directory;
  readonly name: BytePath;
  /** Relative to the root, as it was told. */
  readonly path: BytePath;
  /** Whether it is a directory that the tree follows. */
  readonly isFollowed: boolean;
}

/** Moves by name: their first halves, and those that may be one half of an exchange (RENAME_EXCHANGE). */
export class Renames {
  /** Whose second half may follow, by cookie: the last few. */
  readonly #halves = new Map<number, Rename>();
  readonly #suspects = new Set<Rename>();
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

  /** Whether a move takes back the one before: the kernel tells of an exchange as of a move there and one back. */
  takesBack(rename: Rename, to: BytePath): boolean {
    const last = this.#last;
    this.#last = { from: rename.path, to };
    return last?.from === to && last.to === rename.path;
  }

  suspect(rename: Rename): void {
    this.#suspects.add(rename);
  }

  /** What arrives at a place, or leaves it, explains what was seen there. */
  acquit(directory: Directory, name: BytePath): void {
    for (const suspect of this.#suspects) {
      if (suspect.directory === directory && suspect.name === name) this.#suspects.delete(suspect);
    }
  }

  /** Whether it is still suspected. */
  convict(rename: Rename): boolean {
    return this.#suspects.delete(rename);
  }
}
