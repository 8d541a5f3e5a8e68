import { EnvdError, isSystemError } from '../../../../base/errors.ts';
import type { DirectoryHandle } from '../../../linux/files/directory-handle.ts';
import type { Descent } from './descent.ts';
import { type Directory, DirectoryScan } from './directory.ts';
import type { Tree } from './tree.ts';

/** The most bytes of names of one directory that are kept until they are reported. */
const MOST_KNOWN = 16 * 1024 * 1024;

/**
 * `more` means that the directory was not read to its end yet, `done` that its `look` is complete, `none` that it need not or
 * cannot be surveyed now, and `later` that it is to be tried again soon: the limit of kernel watches is reached, but some are
 * being released.
 */
export type ReadState = 'more' | 'done' | 'none' | 'later';

/** Watches directories and reads their names, one directory at a time. */
export class NameReader implements Disposable {
  readonly #tree: Tree;
  #handle: DirectoryHandle | null = null;

  constructor(tree: Tree) {
    this.#tree = tree;
  }

  /**
   * Reads the next names of a directory. After `more` it has to be called again with the same directory. Throws open(2)'s
   * errors, and `resource_exhausted` at the limit of kernel watches.
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
    // A new tree is read then, which reports none of the entries that it finds.
    this.#tree.tellRoot('rescan');
    return 'none';
  }

  [Symbol.dispose](): void {
    this.#handle?.[Symbol.dispose]();
    this.#handle = null;
  }

  #begin(directory: Directory, descent: Descent): ReadState {
    const { root, enters } = this.#tree;
    if (directory.surveyed || directory.look) return 'none';
    const top = directory.top();
    if (top !== root) {
      top.moving?.unsurveyed.push(directory);
      return 'none';
    }
    const path = this.#tree.locate(directory);
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

  /** Throws the error, unless it means that the directory is not to be entered, or that it can be watched soon. */
  #refused(error: unknown): 'none' | 'later' {
    const { kernel, ground } = this.#tree;
    // The user whose link led to the root may not read this directory.
    const isForbidden = ground.owner !== null && isSystemError(error, 'EACCES');
    if (isForbidden || isSystemError(error, 'EXDEV')) return 'none';
    const isAtLimit = error instanceof EnvdError && error.kind === 'resource_exhausted';
    if (isAtLimit && kernel.releases.isBusy) return 'later';
    throw error;
  }

  /** Watches the open directory. Returns false when another directory is watched already at this place of the tree. */
  #watch(directory: Directory, look: DirectoryScan, handle: DirectoryHandle): boolean {
    const { kernel } = this.#tree;
    if (directory.descriptor !== null) return kernel.isWatch(directory.descriptor, handle.path);
    this.#tree.watch(directory, handle);
    // A kernel watch that others share also delivers events from before this subscription.
    if (kernel.isShared(directory)) {
      kernel.whenPassed(() => {
        look.events.length = 0;
      });
    }
    return true;
  }
}
