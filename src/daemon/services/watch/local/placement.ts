import { isSystemError } from '../../../../base/errors.ts';
import { type Access, DirectoryHandle } from '../../../linux/files/directory-handle.ts';
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
import { isAtOrBelow, type Mount, mountsBelow, readMounts } from '../../../linux/paths/mounts.ts';
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

/** Maximum number of directories that are kept open. */
const MOST_OPEN = 64;

/** The root of a tree. */
export interface Ground {
  /** Without symbolic links. */
  readonly path: BytePath;
  /** The user whose permissions apply below; null: the daemon's. */
  readonly owner: number | null;
}

/** Maps the directories of a tree to paths of the file system and to kernel watches. */
export class Placement {
  readonly kernel: KernelWatches;
  readonly root: Directory;
  readonly ground: Ground;

  constructor(kernel: KernelWatches, root: Directory, ground: Ground) {
    this.kernel = kernel;
    this.root = root;
    this.ground = ground;
  }

  /** The directory's path in the file system, or null while it is not part of the tree. */
  locate(directory: Directory): BytePath | null {
    if (directory.gone || directory.top() !== this.root) return null;
    const path = directory.path();
    return path === null ? null : joinBytes(this.ground.path, path);
  }

  /** Opens directories in this turn of the event loop. */
  descend(): Descent {
    return new Descent(this);
  }

  /** Watches the root. Throws open(2)'s and inotify_add_watch(2)'s errors. */
  watchRoot(): void {
    using descent = this.descend();
    using handle = descent.openRoot();
    this.watch(this.root, handle);
  }

  /** Watches the open directory for `directory`, which has no watch. Throws `resource_exhausted`. */
  watch(directory: Directory, handle: DirectoryHandle): void {
    const shown = this.locate(directory) ?? handle.path;
    directory.descriptor = this.kernel.subscribe(handle.path, MASK, directory, shown);
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

  /** Discards the read in progress of a directory. */
  cancel(directory: Directory): void {
    directory.look = null;
    if (directory !== this.root) this.kernel.release(directory);
  }

  /** Removes a directory and all below from the tree. */
  discard(directory: Directory): void {
    directory.gone = true;
    directory.moving = null;
    directory.detach();
    this.kernel.releases.add(directory);
  }
}

/**
 * Opens directories of a tree within one turn of the event loop. Their paths in the tree may be outdated, or lead
 * elsewhere: no link is followed, and what is opened is compared with the kernel watch. Mounts that appeared later are
 * entered only if they are local: others may not answer.
 */
export class Descent implements Disposable {
  readonly #placement: Placement;
  /** Opened with O_PATH; null: the directory was moved or replaced since it was watched. */
  readonly #open = new Map<Directory, DirectoryHandle | null>();
  #mounts: readonly Mount[] | null = null;

  constructor(placement: Placement) {
    this.#placement = placement;
  }

  /** The watched directory; null when it is not at its path in the tree. Valid until the next call. */
  find(directory: Directory): DirectoryHandle | null {
    const known = this.#open.get(directory);
    if (known !== undefined) return known;
    if (this.#open.size >= MOST_OPEN) this[Symbol.dispose]();
    const handle = this.#tryToOpen(directory);
    const { descriptor } = directory;
    const isFound = handle && descriptor !== null && this.#placement.kernel.isWatch(descriptor, handle.path);
    const found = isFound ? handle : null;
    if (!found) handle?.[Symbol.dispose]();
    this.#open.set(directory, found);
    return found;
  }

  /** Opens the root for reading. Throws open(2)'s errors. */
  openRoot(): DirectoryHandle {
    const { path, owner } = this.#placement.ground;
    return DirectoryHandle.open(path, 'read', owner);
  }

  /**
   * Opens a directory for reading through its parent; null when that is not at its path. Throws open(2)'s errors, EXDEV
   * for a mount that is not entered.
   */
  open(directory: Directory): DirectoryHandle | null {
    const parent = directory.parent && this.find(directory.parent);
    return parent && this.#openBelow(parent, directory.name, 'read', directory);
  }

  [Symbol.dispose](): void {
    for (const handle of this.#open.values()) handle?.[Symbol.dispose]();
    this.#open.clear();
  }

  #tryToOpen(directory: Directory): DirectoryHandle | null {
    const { root, ground } = this.#placement;
    if (directory.descriptor === null || directory.top() !== root) return null;
    try {
      if (directory === root) return DirectoryHandle.open(ground.path, 'locate', null);
      const path = directory.path();
      const from = path === null ? null : this.find(root);
      return from && this.#openBelow(from, path ?? '', 'locate', directory);
    } catch {
      return null;
    }
  }

  #openBelow(from: DirectoryHandle, path: BytePath, access: Access, directory: Directory): DirectoryHandle {
    const owner = access === 'read' ? this.#placement.ground.owner : null;
    try {
      return from.below(path, { access, owner, crosses: false });
    } catch (error) {
      if (!isSystemError(error, 'EXDEV') || !this.#isLocal(directory)) throw error;
      return from.below(path, { access, owner, crosses: true });
    }
  }

  /** Whether all mounts between the root and the directory are local. */
  #isLocal(directory: Directory): boolean {
    const ground = this.#placement.ground.path;
    this.#mounts ??= mountsBelow(readMounts(), ground);
    const path = joinBytes(ground, directory.path() ?? '');
    return this.#mounts.every((mount) => mount.kind === 'local' || !isAtOrBelow(mount.path, path));
  }
}
