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
  /** The mounts below the root, which are valid in one turn of the event loop; null while nobody has asked for them. */
  mounts: readonly Mount[] | null;
}

/** Returns the directory's path in the file system, or null while it is not part of the tree. */
export function pathOf({ root, ground }: PlacedTree, directory: Directory): BytePath | null {
  if (directory.gone || directory.top() !== root) return null;
  const path = directory.path();
  return path === null ? null : joinBytes(ground.path, path);
}

/** Opens the root for reading. Throws open(2)'s errors. */
export function openRoot({ ground: { path, owner } }: PlacedTree): DirectoryHandle {
  return DirectoryHandle.open(path, 'read', owner);
}

/**
 * Opens a watched directory, which allows no reading of names; returns null when it is not at its path in the tree. That may
 * be outdated or lead elsewhere, so no link is followed, and what was opened is compared with the kernel watch.
 */
export function findDirectory(tree: PlacedTree, directory: Directory): DirectoryHandle | null {
  if (directory === tree.root) {
    return openWatched(tree, directory, () => DirectoryHandle.open(tree.ground.path, 'locate', null));
  }
  using root = findDirectory(tree, tree.root);
  return root && findBelow(tree, root, directory);
}

/** Does the same for a directory below the open root. */
export function findBelow(
  tree: PlacedTree,
  root: DirectoryHandle,
  directory: Directory,
): DirectoryHandle | null {
  const path = pathOf(tree, directory) === null ? null : directory.path();
  if (path === null) return null;
  return openWatched(tree, directory, () => openBelow(tree, root, path, 'locate', directory));
}

function openWatched(
  tree: PlacedTree,
  { descriptor }: Directory,
  open: () => DirectoryHandle,
): DirectoryHandle | null {
  if (descriptor === null) return null;
  try {
    const handle = open();
    if (tree.kernel.isWatch(descriptor, handle.path)) return handle;
    handle[Symbol.dispose]();
  } catch {
    // A part of the path is gone, or is no directory that may be entered.
  }
  return null;
}

/**
 * Opens `directory`, which is at `path` below an open one. Mounts that appeared later are entered only if they are local,
 * because the server of another one may not answer; others cause EXDEV. Throws open(2)'s errors.
 */
export function openBelow(
  tree: PlacedTree,
  from: DirectoryHandle,
  path: BytePath,
  access: Access,
  directory: Directory,
): DirectoryHandle {
  const owner = access === 'read' ? tree.ground.owner : null;
  try {
    return from.below(path, { access, owner, crosses: false });
  } catch (error) {
    if (!isSystemError(error, 'EXDEV') || !isLocal(tree, directory)) throw error;
    return from.below(path, { access, owner, crosses: true });
  }
}

/** Adds a kernel watch of an open directory for `directory`, which has none. Throws `resource_exhausted` at the limit. */
export function watchDirectory(tree: PlacedTree, directory: Directory, handle: DirectoryHandle): void {
  const shown = pathOf(tree, directory) ?? handle.path;
  directory.descriptor = tree.kernel.subscribe(handle.path, MASK, directory, shown);
}

/** Returns whether the watched directory is at its path in the tree. */
export function isInPlace(tree: PlacedTree, directory: Directory): boolean {
  using place = findDirectory(tree, directory);
  return place !== null;
}

/**
 * Returns what kind of entry has this name in a directory; null when none has, or when the directory is not at its path.
 */
export function entryKindOf(
  tree: PlacedTree,
  directory: Directory,
  name: BytePath,
): 'directory' | 'other' | null {
  using place = findDirectory(tree, directory);
  return place?.kindOf(name) ?? null;
}

/** Returns when a file was modified, in milliseconds since the epoch; 0 in the cases in which `entryKindOf` returns null. */
export function modifiedMsOf(tree: PlacedTree, directory: Directory, name: BytePath): number {
  using place = findDirectory(tree, directory);
  return place?.modifiedMsOf(name) ?? 0;
}

/** Returns whether all mounts between the root and the directory are local. */
function isLocal(tree: PlacedTree, directory: Directory): boolean {
  const path = pathOf(tree, directory);
  tree.mounts ??= readMountsBelow(tree);
  return (
    path !== null && tree.mounts.every((mount) => mount.kind === 'local' || !isAtOrBelow(mount.path, path))
  );
}

function readMountsBelow(tree: PlacedTree): readonly Mount[] {
  setImmediate(() => {
    tree.mounts = null;
  });
  return mountsBelow(readMounts(), tree.ground.path);
}
