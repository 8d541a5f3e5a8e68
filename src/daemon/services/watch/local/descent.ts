import { isSystemError } from '../../../../base/errors.ts';
import { type Access, DirectoryHandle } from '../../../linux/files/directory-handle.ts';
import { type BytePath, joinBytes } from '../../../linux/paths/byte-path.ts';
import { isAtOrBelow, type Mount, mountsBelow, readMounts } from '../../../linux/paths/mounts.ts';
import type { Directory } from './directory.ts';
import type { KernelWatches } from './kernel-watches.ts';

/** Maximum number of directories that are kept open. */
const MOST_OPEN = 64;

/** The root of a tree. */
export interface Ground {
  /** Without symbolic links. */
  readonly path: BytePath;
  /** The user whose permissions apply below; null: the daemon's. */
  readonly owner: number | null;
}

/**
 * Opens directories of a tree within one turn of the event loop. Their paths in the tree may be outdated, or lead
 * elsewhere: no link is followed, and what is opened is compared with the kernel watch. Mounts that appeared later are
 * entered only if they are local: others may not answer.
 */
export class Descent implements Disposable {
  readonly #kernel: KernelWatches;
  readonly #root: Directory;
  readonly #ground: Ground;
  /** Opened with O_PATH; null: not at its path. */
  readonly #open = new Map<Directory, DirectoryHandle | null>();
  #mounts: readonly Mount[] | null = null;

  constructor(kernel: KernelWatches, root: Directory, ground: Ground) {
    this.#kernel = kernel;
    this.#root = root;
    this.#ground = ground;
  }

  /** The watched directory; null when it is not at its path in the tree. To be used until the next call. */
  find(directory: Directory): DirectoryHandle | null {
    const known = this.#open.get(directory);
    if (known !== undefined) return known;
    if (this.#open.size >= MOST_OPEN) this.#close();
    const handle = this.#tryToOpen(directory);
    const isFound =
      handle && directory.descriptor !== null && this.#kernel.isWatch(directory.descriptor, handle.path);
    const found = isFound ? handle : null;
    if (!found) handle?.[Symbol.dispose]();
    this.#open.set(directory, found);
    return found;
  }

  /** Opens the root for reading. Throws open(2)'s errors. */
  openRoot(): DirectoryHandle {
    return DirectoryHandle.open(this.#ground.path, 'read', this.#ground.owner);
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
    this.#close();
  }

  #close(): void {
    for (const handle of this.#open.values()) handle?.[Symbol.dispose]();
    this.#open.clear();
  }

  #tryToOpen(directory: Directory): DirectoryHandle | null {
    if (directory.descriptor === null || directory.top() !== this.#root) return null;
    try {
      if (directory === this.#root) return DirectoryHandle.open(this.#ground.path, 'locate', null);
      const path = directory.path();
      const root = this.find(this.#root);
      return path === null ? null : root && this.#openBelow(root, path, 'locate', directory);
    } catch {
      return null;
    }
  }

  #openBelow(from: DirectoryHandle, path: BytePath, access: Access, directory: Directory): DirectoryHandle {
    const owner = access === 'read' ? this.#ground.owner : null;
    try {
      return from.below(path, { access, owner, crosses: false });
    } catch (error) {
      if (!isSystemError(error, 'EXDEV') || !this.#isLocal(directory)) throw error;
      return from.below(path, { access, owner, crosses: true });
    }
  }

  /** Whether all mounts between the root and the directory are local. */
  #isLocal(directory: Directory): boolean {
    this.#mounts ??= mountsBelow(readMounts(), this.#ground.path);
    const path = joinBytes(this.#ground.path, directory.path() ?? '');
    return this.#mounts.every((mount) => mount.kind === 'local' || !isAtOrBelow(mount.path, path));
  }
}
