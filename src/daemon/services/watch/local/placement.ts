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
 * The kernel merges equal events while they are queued. IN_CLOSE_WRITE separates the IN_MODIFY events of a file that is
 * opened and written several times; it is reported itself only for a file that was written through a shared mapping.
 * IN_EXCL_UNLINK suppresses the events of files that were unlinked.
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

const MOST_OPEN = 64;

export interface Ground {
  /** The path, which contains no symbolic link. */
  readonly path: BytePath;
  /** The user whose permissions apply below; null when the daemon's permissions apply. */
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

  /** Returns the directory's path in the file system, or null while it is not part of the tree. */
  locate(directory: Directory): BytePath | null {
    if (directory.gone || directory.top() !== this.root) return null;
    const path = directory.path();
    return path === null ? null : joinBytes(this.ground.path, path);
  }

  /** Watches the root. Throws open(2)'s and inotify_add_watch(2)'s errors. */
  watchRoot(): void {
    using descent = new Descent(this);
    using handle = descent.openRoot();
    this.watch(this.root, handle);
  }

  /** Adds a kernel watch of an open directory for `directory`, which has none. Throws `resource_exhausted` at the limit. */
  watch(directory: Directory, handle: DirectoryHandle): void {
    const shown = this.locate(directory) ?? handle.path;
    directory.descriptor = this.kernel.subscribe(handle.path, MASK, directory, shown);
  }

  /** Returns whether the watched directory is at its path in the tree. */
  isInPlace(directory: Directory): boolean {
    using descent = new Descent(this);
    return descent.find(directory) !== null;
  }

  /**
   * Returns what kind of entry has this name in a directory; null when none has, or when the directory is not at its path.
   */
  kindOf(directory: Directory, name: BytePath): 'directory' | 'other' | null {
    using descent = new Descent(this);
    return descent.find(directory)?.kindOf(name) ?? null;
  }

  /** Returns when a file was modified, in milliseconds since the epoch; null in the cases of `kindOf`. */
  modifiedMsOf(directory: Directory, name: BytePath): number | null {
    using descent = new Descent(this);
    return descent.find(directory)?.modifiedMsOf(name) ?? null;
  }

  /** Discards what was read of a directory. */
  cancel(directory: Directory): void {
    directory.look = null;
    if (directory !== this.root) this.kernel.release(directory);
  }

  /** Removes a directory and everything below it from the tree. */
  discard(directory: Directory): void {
    directory.gone = true;
    directory.moving = null;
    directory.detach();
    this.kernel.releases.add(directory);
  }
}

/**
 * Opens directories of a tree within one turn of the event loop. Their paths in the tree may be outdated or lead elsewhere,
 * so no link is followed, and what was opened is compared with the kernel watch. Mounts that appeared later are entered only
 * if they are local, because the server of another one may not answer.
 */
export class Descent implements Disposable {
  readonly #placement: Placement;
  /** Directories opened with O_PATH; null for one that was moved or replaced since it was watched. */
  readonly #open = new Map<Directory, DirectoryHandle | null>();
  #mounts: readonly Mount[] | null = null;

  constructor(placement: Placement) {
    this.#placement = placement;
  }

  /**
   * Opens a watched directory; returns null when it is not at its path in the tree. The result is valid until the next call.
   */
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
   * Opens a directory for reading through its parent; returns null when the parent is not at its path. Throws open(2)'s
   * errors, and EXDEV for a mount that is not entered.
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

  /** Returns whether all mounts between the root and the directory are local. */
  #isLocal(directory: Directory): boolean {
    const ground = this.#placement.ground.path;
    this.#mounts ??= mountsBelow(readMounts(), ground);
    const path = joinBytes(ground, directory.path() ?? '');
    return this.#mounts.every((mount) => mount.kind === 'local' || !isAtOrBelow(mount.path, path));
  }
}
