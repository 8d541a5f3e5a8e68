import { EnvdError, isSystemError } from '../../../../base/errors.ts';
import type { DirectoryHandle } from '../../../linux/files/directory-handle.ts';
import { type Directory, DirectoryScan } from './directory.ts';
import type { Descent } from './placement.ts';
import type { Tree } from './tree.ts';

/** Maximum size of the names of one directory, in bytes, while entries that are found are told. */
const MOST_KNOWN = 16 * 1024 * 1024;

/**
 * `more`: the directory is not read to its end yet; `done`: it has a look; `none`: it need not or cannot be surveyed now;
 * `later`: the limit of kernel watches is reached, but some are being released: it is to be tried again soon.
 */
export type ReadState = 'more' | 'done' | 'none' | 'later';

/** Watches directories and reads their names, one directory at a time. */
export class NameReader implements Disposable {
  readonly #tree: Tree;
  /** The directory that is being read. */
  #handle: DirectoryHandle | null = null;

  constructor(tree: Tree) {
    this.#tree = tree;
  }

  /**
   * Reads the next names of a directory; after `more` it has to be called again with the same directory. Throws
   * open(2)'s errors, and `resource_exhausted`.
   */
  step(directory: Directory, descent: Descent): ReadState {
    if (!this.#handle) {
      const begun = this.#begin(directory, descent);
      if (begun !== 'more') return begun;
    }
    const { recursive, isLive } = this.#tree;
    const { look } = directory;
    const names = recursive ? this.#handle?.nextNames(isLive) : null;
    for (const name of names?.directories ?? []) look?.addKnown(name, true);
    for (const name of names?.others ?? []) look?.addKnown(name, false);
    const isTooLarge = isLive && (look?.knownBytes ?? 0) > MOST_KNOWN;
    if (names && !isTooLarge) return 'more';
    this[Symbol.dispose]();
    if (!isTooLarge) return 'done';
    // The tree is read anew then, without telling what is found.
    this.#tree.tellRoot('rescan');
    return 'none';
  }

  [Symbol.dispose](): void {
    this.#handle?.[Symbol.dispose]();
    this.#handle = null;
  }

  #begin(directory: Directory, descent: Descent): ReadState {
    const { root, enters, placement } = this.#tree;
    if (directory.surveyed || directory.look) return 'none';
    const top = directory.top();
    if (top !== root) {
      top.moving?.unsurveyed.push(directory);
      return 'none';
    }
    const path = placement.locate(directory);
    if (path === null || !(directory === root || enters(path))) return 'none';
    return this.#open(directory, descent);
  }

  #open(directory: Directory, descent: Descent): ReadState {
    const look = new DirectoryScan(directory.moves);
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

  /** Throws the error unless it is one of a mount that is not entered, or of a user's rights, or can pass. */
  #refused(error: unknown): 'none' | 'later' {
    const { kernel, placement } = this.#tree;
    // The owner of the link to the root may not read the directory.
    const isForbidden = placement.ground.owner !== null && isSystemError(error, 'EACCES');
    if (isForbidden || isSystemError(error, 'EXDEV')) return 'none';
    const isAtLimit = error instanceof EnvdError && error.kind === 'resource_exhausted';
    if (isAtLimit && kernel.releases.isBusy) return 'later';
    throw error;
  }

  /** Watches the open directory; false when it is another than the one that is watched. */
  #watch(directory: Directory, look: DirectoryScan, handle: DirectoryHandle): boolean {
    const { kernel, placement } = this.#tree;
    if (directory.descriptor !== null) return kernel.isWatch(directory.descriptor, handle.path);
    placement.watch(directory, handle);
    // A shared kernel watch also delivers events from before this subscription.
    if (kernel.isShared(directory)) {
      kernel.whenPassed(() => {
        look.events.length = 0;
      });
    }
    return true;
  }
}
