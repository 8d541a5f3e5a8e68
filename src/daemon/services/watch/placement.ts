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

/** Where the directories of a tree are in the file system, and their kernel watches. */
export class Placement {
  readonly #kernel: KernelWatches;
  readonly #root: Directory;
  readonly #rootPath: BytePath;

  constructor(kernel: KernelWatches, root: Directory, rootPath: BytePath) {
    this.#kernel = kernel;
    this.#root = root;
    this.#rootPath = rootPath;
  }

  /** The directory's path in the file system, or null when it is no part of the tree at the moment. */
  locate(directory: Directory): BytePath | null {
    if (directory.gone || directory.top() !== this.#root) return null;
    return this.resolve(directory.path());
  }

  /** The path in the file system of what is at `path` in the tree. */
  resolve(path: BytePath): BytePath {
    return joinBytes(this.#rootPath, path);
  }

  /** Watches the root. Throws inotify_add_watch(2)'s errors. */
  watchRoot(): void {
    this.#root.descriptor = this.#kernel.subscribe(this.#rootPath, MASK, this.#root);
  }

  /** Watches what is at `path` in the file system for `directory`, which has no watch; whether it is there. */
  watch(directory: Directory, path: BytePath): boolean {
    try {
      directory.descriptor = this.#kernel.subscribe(path, MASK, directory);
      return true;
    } catch (error) {
      if (isSystemError(error, 'ENOENT', 'ENOTDIR')) return false;
      throw error;
    }
  }

  /** Whether others had the directory's watch before. */
  isShared({ descriptor }: Directory): boolean {
    return descriptor !== null && this.#kernel.isShared(descriptor);
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
    directory.descriptor = null;
    this.#kernel.unsubscribe(descriptor, directory);
  }

  /** Makes void what is being seen of a directory. */
  cancel(directory: Directory): void {
    if (!directory.look) return;
    directory.look = null;
    if (directory !== this.#root) this.release(directory);
  }

  /** Takes a directory out of its parent, for a move. */
  detach(directory: Directory): void {
    for (const each of directory.all()) this.cancel(each);
    directory.detach();
  }

  /** Takes a directory and all below out of the tree for good. */
  discard(directory: Directory): void {
    for (const each of directory.all()) {
      each.gone = true;
      this.release(each);
    }
    directory.detach();
  }
}
