import { isSystemError } from '../../base/errors.ts';
import { type BytePath, joinBytes } from '../../os/byte-path.ts';
import {
  IN_ATTRIB,
  IN_CLOSE_WRITE,
  IN_CREATE,
  IN_DELETE,
  IN_DELETE_SELF,
  IN_EXCL_UNLINK,
  IN_MODIFY,
  IN_MOVE_SELF,
  IN_MOVED_FROM,
  IN_MOVED_TO,
} from '../../os/inotify.ts';
import type { Directory } from './directory.ts';
import type { KernelWatches } from './kernel-watches.ts';

/**
 * IN_CLOSE_WRITE is told to nobody: it stands between the changes of a file that is opened again and again, which
 * the kernel would fold into one while they wait. IN_EXCL_UNLINK: no changes of files that have lost their name.
 */
const EVENTS =
  IN_CREATE |
  IN_DELETE |
  IN_MOVED_FROM |
  IN_MOVED_TO |
  IN_MODIFY |
  IN_ATTRIB |
  IN_CLOSE_WRITE |
  IN_EXCL_UNLINK;
const MASK = EVENTS | IN_DELETE_SELF | IN_MOVE_SELF;

/** What became of an attempt to watch; a directory: the tree has it there, at another place. */
export type Placed = 'watched' | 'missing' | Directory;

/** Which directory of a tree has which kernel watch, and whether that is the right one. */
export class Placement {
  readonly #kernel: KernelWatches;
  readonly #root: Directory;
  readonly #rootPath: BytePath;
  /** By watch descriptor. */
  readonly #owners = new Map<number, Directory>();

  constructor(kernel: KernelWatches, root: Directory, rootPath: BytePath) {
    this.#kernel = kernel;
    this.#root = root;
    this.#rootPath = rootPath;
  }

  /** The directory's path in the file system, or null when it is no part of the tree at the moment. */
  locate(directory: Directory): BytePath | null {
    if (directory.gone || directory.top() !== this.#root) return null;
    return joinBytes(this.#rootPath, directory.path());
  }

  /** Watches the root. Throws inotify_add_watch(2)'s errors. */
  watchRoot(): void {
    this.#own(this.#root, this.#kernel.subscribe(this.#rootPath, MASK, this.#root));
  }

  /** Watches what is at `path` in the file system for `directory`, which has no watch. */
  watch(directory: Directory, path: BytePath): Placed {
    try {
      const descriptor = this.#kernel.subscribe(path, MASK, directory);
      const owner = this.#owners.get(descriptor);
      // Still at its old place as well: a bind mount.
      if (!owner || this.isRight(owner)) {
        this.#own(directory, descriptor);
        return 'watched';
      }
      this.#kernel.unsubscribe(descriptor, directory);
      return owner;
    } catch (error) {
      if (isSystemError(error, 'ENOENT', 'ENOTDIR')) return 'missing';
      throw error;
    }
  }

  /** Whether the directory with this watch is where the tree has it. */
  isRight(directory: Directory): boolean {
    const path = this.locate(directory);
    return path !== null && this.isAt(directory, path);
  }

  /** Whether the directory with this watch is at `path` in the file system. */
  isAt(directory: Directory, path: BytePath): boolean {
    try {
      return directory.descriptor !== null && this.#kernel.identify(path) === directory.descriptor;
    } catch {
      return false;
    }
  }

  /** Gives up the watch, not those below. */
  release(directory: Directory): void {
    const { descriptor } = directory;
    if (descriptor === null) return;
    this.dropped(directory);
    this.#kernel.unsubscribe(descriptor, directory);
  }

  /** The kernel has dropped the watch. */
  dropped(directory: Directory): void {
    const { descriptor } = directory;
    if (descriptor !== null && this.#owners.get(descriptor) === directory) this.#owners.delete(descriptor);
    directory.descriptor = null;
  }

  /** Takes a directory and all below out of the tree for good. */
  discard(directory: Directory): void {
    for (const each of directory.all()) {
      each.gone = true;
      this.release(each);
    }
    directory.detach();
  }

  #own(directory: Directory, descriptor: number): void {
    directory.descriptor = descriptor;
    directory.settling = true;
    if (!this.#owners.has(descriptor)) this.#owners.set(descriptor, directory);
  }
}
