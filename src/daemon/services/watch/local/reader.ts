import { EnvdError, isSystemError } from '../../../../base/errors.ts';
import type { DirectoryHandle } from '../../../linux/files/directory-handle.ts';
import type { BytePath } from '../../../linux/paths/byte-path.ts';
import type { Descent } from './descent.ts';
import { type Directory, Look } from './directory.ts';
import type { KernelWatches } from './kernel-watches.ts';
import type { Placement } from './placement.ts';

/** Maximum size of the names of one directory, in bytes, while entries that are found are reported. */
const MOST_KNOWN = 16 * 1024 * 1024;

/** What a reader needs of its tree. */
export interface Read {
  readonly root: Directory;
  readonly recursive: boolean;
  /** Whether entries that are found are reported. */
  readonly live: boolean;
  /** Whether the directory at this path is to be surveyed. */
  enters(path: BytePath): boolean;
  /** More entries were found than can be reported: the tree is read anew without reporting them. */
  overflowed(): void;
}

/** Watches directories and reads their names: one at a time, in steps. */
export class Reader implements Disposable {
  readonly #kernel: KernelWatches;
  readonly #placement: Placement;
  readonly #tree: Read;
  #handle: DirectoryHandle | null = null;

  constructor(kernel: KernelWatches, placement: Placement, tree: Read) {
    this.#kernel = kernel;
    this.#placement = placement;
    this.#tree = tree;
  }

  /**
   * Takes the next step with a directory: `more` is to be called again with it; `done`: it has a look; `none`: it need
   * not or cannot be surveyed now; `later`: when kernel watches have been released. Throws open(2)'s errors, and
   * `resource_exhausted`.
   */
  step(directory: Directory, descent: Descent): 'more' | 'done' | 'none' | 'later' {
    if (!this.#handle) {
      const begun = this.#begin(directory, descent);
      if (begun !== 'more') return begun;
    }
    const names = this.#tree.recursive ? this.#handle?.nextNames(this.#tree.live) : null;
    if (names) {
      for (const name of names.directories) directory.look?.addKnown(name, true);
      for (const name of names.others) directory.look?.addKnown(name, false);
      if (!this.#tree.live || (directory.look?.knownBytes ?? 0) <= MOST_KNOWN) return 'more';
      this.#tree.overflowed();
      return 'none';
    }
    this[Symbol.dispose]();
    return 'done';
  }

  [Symbol.dispose](): void {
    this.#handle?.[Symbol.dispose]();
    this.#handle = null;
  }

  #begin(directory: Directory, descent: Descent): 'more' | 'done' | 'none' | 'later' {
    if (directory.surveyed || directory.look) return 'none';
    const top = directory.top();
    if (top !== this.#tree.root) {
      top.moving?.unsurveyed.push(directory);
      return 'none';
    }
    const path = this.#placement.locate(directory);
    if (path === null || !(directory === top || this.#tree.enters(path))) return 'none';
    return this.#open(directory, descent);
  }

  #open(directory: Directory, descent: Descent): 'more' | 'done' | 'none' | 'later' {
    const look = new Look(directory.moves);
    try {
      const handle = directory === this.#tree.root ? descent.openRoot() : descent.open(directory);
      this.#handle = handle;
      if (handle) look.outcome = this.#watch(directory, look, handle) ? 'found' : 'missing';
      if (look.outcome !== 'found') this[Symbol.dispose]();
    } catch (error) {
      this[Symbol.dispose]();
      if (isSystemError(error, 'ENOENT', 'ENOTDIR', 'ELOOP')) look.outcome = 'missing';
      else return this.#refused(error);
    }
    directory.look = look;
    return look.outcome === 'found' ? 'more' : 'done';
  }

  /** A mount that is not entered, or a directory that the owner of the link to the root may not read. */
  #refused(error: unknown): 'none' | 'later' {
    if (isSystemError(error, 'EXDEV') || (isSystemError(error, 'EACCES') && this.#placement.isRestricted)) {
      return 'none';
    }
    const isAtLimit = error instanceof EnvdError && error.kind === 'resource_exhausted';
    if (isAtLimit && this.#kernel.releases.isBusy) return 'later';
    throw error;
  }

  /** Watches the open directory; false when it is another than the one that is watched. */
  #watch(directory: Directory, look: Look, handle: DirectoryHandle): boolean {
    if (directory.descriptor !== null) return this.#kernel.isWatch(directory.descriptor, handle.path);
    this.#placement.watch(directory, handle);
    // A shared kernel watch also delivers events from before this subscription.
    if (this.#placement.isShared(directory)) {
      this.#kernel.whenPassed(() => {
        look.events.length = 0;
      });
    }
    return true;
  }
}
