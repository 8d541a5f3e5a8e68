import type { DirectoryHandle } from '../../../linux/files/directory-handle.ts';
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
} from '../../../linux/inotify/inotify.ts';
import { type BytePath, joinBytes } from '../../../linux/paths/byte-path.ts';
import { Descent, type Ground } from './descent.ts';
import type { Directory } from './directory.ts';
import type { KernelWatches } from './kernel-watches.ts';

/**
 * IN_CLOSE_WRITE separates the IN_MODIFY events of a file that is written repeatedly, which the kernel would otherwise merge
 * while they are queued; it is reported only for a file that was written through a shared mapping. IN_EXCL_UNLINK: no events of files that have been unlinked.
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
  readonly #ground: Ground;

  constructor(kernel: KernelWatches, root: Directory, ground: Ground) {
    this.#kernel = kernel;
    this.#root = root;
    this.#ground = ground;
  }

  /** Whether permissions of a user apply. */
  get isRestricted(): boolean {
    return this.#ground.owner !== null;
  }

  /** The directory's path in the file system, or null while it is not part of the tree. */
  locate(directory: Directory): BytePath | null {
    if (directory.gone || directory.top() !== this.#root) return null;
    const path = directory.path();
    return path === null ? null : joinBytes(this.#ground.path, path);
  }

  /** To open directories in this turn of the event loop. */
  descend(): Descent {
    return new Descent(this.#kernel, this.#root, this.#ground);
  }

  /** Watches the root. Throws open(2)'s and inotify_add_watch(2)'s errors. */
  watchRoot(): void {
    using descent = this.descend();
    using handle = descent.openRoot();
    this.watch(this.#root, handle);
  }

  /** Watches the open directory for `directory`, which has no watch. Throws `resource_exhausted`. */
  watch(directory: Directory, handle: DirectoryHandle): void {
    const shown = this.locate(directory) ?? handle.path;
    directory.descriptor = this.#kernel.subscribe(handle.path, MASK, directory, shown);
  }

  /** Whether the directory's kernel watch has other subscribers. */
  isShared({ descriptor }: Directory): boolean {
    return descriptor !== null && this.#kernel.isShared(descriptor);
  }

  /** Whether the watched directory is at its path in the tree. */
  isInPlace(directory: Directory): boolean {
    using descent = this.descend();
    return descent.find(directory) !== null;
  }

  /** What has this name in a directory; null if nothing has, or the directory is not at its path. */
  kindOf(directory: Directory, name: BytePath): 'directory' | 'other' | null {
    using descent = this.descend();
    return descent.find(directory)?.kindOf(name) ?? null;
  }

  /** When a file in a directory was modified, in milliseconds since the epoch; null as for `kindOf`. */
  modifiedMsOf(directory: Directory, name: BytePath): number | null {
    using descent = this.descend();
    return descent.find(directory)?.modifiedMsOf(name) ?? null;
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
    directory.look = null;
    if (directory !== this.#root) this.release(directory);
  }

  /** Removes a directory and all below from the tree. */
  discard(directory: Directory): void {
    directory.gone = true;
    directory.moving = null;
    directory.detach();
    this.#kernel.releases.add(directory);
  }
}
