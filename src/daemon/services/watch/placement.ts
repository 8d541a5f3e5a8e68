import { isSystemError } from '../../../base/errors.ts';
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
 * IN_CLOSE_WRITE is not reported: it separates the IN_MODIFY events of a file that is written repeatedly, which the
 * kernel would otherwise merge while they are queued. IN_EXCL_UNLINK: no events of files that have been unlinked.
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

/** Maps the directories of a tree to paths of the file system and to kernel watches. */
export class Placement {
  readonly #kernel: KernelWatches;
  readonly #root: Directory;
  readonly #rootPath: BytePath;

  constructor(kernel: KernelWatches, root: Directory, rootPath: BytePath) {
    this.#kernel = kernel;
    this.#root = root;
    this.#rootPath = rootPath;
  }

  /** The directory's path in the file system, or null while it is not part of the tree. */
  locate(directory: Directory): BytePath | null {
    if (directory.gone || directory.top() !== this.#root) return null;
    return this.resolve(directory.path());
  }

  /** The path in the file system of `path` in the tree. */
  resolve(path: BytePath): BytePath {
    return joinBytes(this.#rootPath, path);
  }

  /** Watches the root. Throws inotify_add_watch(2)'s errors. */
  watchRoot(): void {
    this.#root.descriptor = this.#kernel.subscribe(this.#rootPath, MASK, this.#root);
  }

  /** Watches `path` of the file system for `directory`, which has no watch; false when there is no directory. */
  watch(directory: Directory, path: BytePath): boolean {
    try {
      directory.descriptor = this.#kernel.subscribe(path, MASK, directory);
      return true;
    } catch (error) {
      if (isSystemError(error, 'ENOENT', 'ENOTDIR')) return false;
      throw error;
    }
  }

  /** Whether the directory's kernel watch has other subscribers. */
  isShared({ descriptor }: Directory): boolean {
    return descriptor !== null && this.#kernel.isShared(descriptor);
  }

  /** Whether the watched directory is at its path in the tree. */
  isInPlace(directory: Directory): boolean {
    const path = this.locate(directory);
    return path !== null && this.isAt(directory, path);
  }

  /** Whether the watched directory is at `path` of the file system. */
  isAt(directory: Directory, path: BytePath): boolean {
    try {
      return directory.descriptor !== null && this.#kernel.identify(path) === directory.descriptor;
    } catch {
      return false;
    }
  }

  /** Removes the watch, not those below. */
  release(directory: Directory): void {
    const { descriptor } = directory;
    if (descriptor === null) return;
    directory.descriptor = null;
    this.#kernel.unsubscribe(descriptor, directory);
  }

  /** Discards the read in progress of a directory. */
  cancel(directory: Directory): void {
    if (!directory.look) return;
    directory.look = null;
    if (directory !== this.#root) this.release(directory);
  }

  /** Detaches a directory from its parent, for a move. */
  detach(directory: Directory): void {
    for (const each of directory.all()) this.cancel(each);
    directory.detach();
  }

  /** Removes a directory and all below from the tree. */
  discard(directory: Directory): void {
    for (const each of directory.all()) {
      each.gone = true;
      this.release(each);
    }
    directory.detach();
  }
}
