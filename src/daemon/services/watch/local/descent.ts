import { isSystemError } from '../../../../base/errors.ts';
import { type Access, DirectoryHandle } from '../../../linux/files/directory-handle.ts';
import { type BytePath, joinBytes } from '../../../linux/paths/byte-path.ts';
import { isAtOrBelow, type Mount, mountsBelow, readMounts } from '../../../linux/paths/mounts.ts';
import type { Directory } from './directory.ts';
import type { KernelWatches } from './kernel-watches.ts';

const MOST_OPEN = 64;

export interface Ground {
  /** The path, which contains no symbolic link. */
  readonly path: BytePath;
  /** The user whose permissions apply below; null when the daemon's permissions apply. */
  readonly owner: number | null;
}

/** A tree of directories, and where it is in the file system. */
export interface PlacedTree {
  readonly kernel: KernelWatches;
  readonly root: Directory;
  readonly ground: Ground;
}

/**
 * Opens directories of a tree within one turn of the event loop. Their paths in the tree may be outdated or lead elsewhere,
 * so no link is followed, and what was opened is compared with the kernel watch. Mounts that appeared later are entered only
 * if they are local, because the server of another one may not answer.
 */
export class Descent implements Disposable {
  readonly #tree: PlacedTree;
  /** Directories opened with O_PATH; null for one that was moved or replaced since it was watched. */
  readonly #open = new Map<Directory, DirectoryHandle | null>();
  #mounts: readonly Mount[] | null = null;

  constructor(tree: PlacedTree) {
    this.#tree = tree;
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
    const isFound = handle && descriptor !== null && this.#tree.kernel.isWatch(descriptor, handle.path);
    const found = isFound ? handle : null;
    if (!found) handle?.[Symbol.dispose]();
    this.#open.set(directory, found);
    return found;
  }

  /** Opens the root for reading. Throws open(2)'s errors. */
  openRoot(): DirectoryHandle {
    const { path, owner } = this.#tree.ground;
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
    const { root, ground } = this.#tree;
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
    const owner = access === 'read' ? this.#tree.ground.owner : null;
    try {
      return from.below(path, { access, owner, crosses: false });
    } catch (error) {
      if (!isSystemError(error, 'EXDEV') || !this.#isLocal(directory)) throw error;
      return from.below(path, { access, owner, crosses: true });
    }
  }

  /** Returns whether all mounts between the root and the directory are local. */
  #isLocal(directory: Directory): boolean {
    const ground = this.#tree.ground.path;
    this.#mounts ??= mountsBelow(readMounts(), ground);
    const path = joinBytes(ground, directory.path() ?? '');
    return this.#mounts.every((mount) => mount.kind === 'local' || !isAtOrBelow(mount.path, path));
  }
}
