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
import { Descent, type Ground, type PlacedTree } from './descent.ts';
import { Directory, type EventReceiver, LONGEST_PATH, type Rename } from './directory.ts';
import { rootChange, type TreeChange, type WatchEventType } from './event.ts';
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

/**
 * A directory counts as moved out of the tree when no IN_MOVED_TO has followed IN_MOVED_FROM for this long, in milliseconds.
 */
const PAIR_MS = 10;
/** The most moves whose IN_MOVED_TO is awaited. */
const MOST_MOVES = 16;

export interface TreeOptions {
  readonly kernel: KernelWatches;
  readonly ground: Ground;
  readonly recursive: boolean;
  /** Returns whether the directory at this path is to be watched. */
  readonly enters: (path: BytePath) => boolean;
}

/** A step to take when `wait` calls back. */
export interface LaterStep {
  readonly wait: (run: () => void) => void;
  readonly step: () => void;
}

/** The changes that a step found, and the steps that are to follow it. */
export interface StepResult {
  readonly changes: readonly TreeChange[];
  readonly later: readonly LaterStep[];
}

/**
 * The directories of one watch. It changes in steps: `applyEvent` for an event of the kernel, and those of `TreeSurvey`. Two
 * changes of the root have a meaning of their own: `rescan` means that the tree differs from the file system and no event
 * explains it; `remove` or `rename` means that the root is, or may be, no longer at its path.
 */
export class Tree implements PlacedTree, Disposable {
  readonly kernel: KernelWatches;
  readonly recursive: boolean;
  readonly enters: (path: BytePath) => boolean;
  readonly root: Directory;
  readonly ground: Ground;
  /** New directories that the survey has not queued yet. */
  readonly unsurveyed: Directory[] = [];
  /** Whether all directories were surveyed once. Changes of entries are reported from then on. */
  isLive = false;
  #changes: TreeChange[] = [];
  #later: LaterStep[] = [];
  /** The last moves for which no IN_MOVED_TO has come, by cookie. */
  readonly #moves = new Map<number, Rename>();
  #lastMove: { readonly from: BytePath | null; readonly to: BytePath | null } | null = null;

  /** `receiver` gets the events of the kernel watches and calls `applyEvent` for them. */
  constructor({ kernel, ground, recursive, enters }: TreeOptions, receiver: EventReceiver) {
    this.kernel = kernel;
    this.recursive = recursive;
    this.enters = enters;
    this.root = new Directory(null, '', receiver);
    this.ground = ground;
  }

  /** Takes a step; returns what it has found. */
  run(step: () => void): StepResult {
    step();
    const result = { changes: this.#changes, later: this.#later };
    if (result.changes.length > 0) this.#changes = [];
    if (result.later.length > 0) this.#later = [];
    return result;
  }

  /** Reports a change of an entry, unless its path is longer than any that a client can name. */
  tell(type: WatchEventType, directory: Directory, name: BytePath, movedFrom: BytePath | null = null): void {
    if (!this.isLive) return;
    const path = directory.path();
    if (path === null || path.length + name.length + 1 >= LONGEST_PATH) return;
    this.#changes.push({ type, directory: path, name, movedFrom });
  }

  tellRoot(type: 'rescan' | 'remove' | 'rename'): void {
    this.#changes.push(rootChange(type));
  }

  /** Takes a step when `wait` calls back. */
  later(wait: LaterStep['wait'], step: () => void): void {
    this.#later.push({ wait, step });
  }

  /** Takes a step when all events up to now have been handled. */
  whenSettled(step: () => void): void {
    this.later((run) => this.kernel.whenSettled(run), step);
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

  /** Adds a directory, which the survey reads later. */
  addDirectory(parent: Directory, name: BytePath): void {
    this.unsurveyed.push(parent.addChild(name));
  }

  /** Removes the directory of this name, if there is one, with everything below it. */
  forget(parent: Directory, name: BytePath): void {
    const child = parent.children.get(name);
    if (child) this.discard(child);
  }

  /** Detaches what IN_MOVED_FROM has moved, until IN_MOVED_TO tells its new place or the time for that is over. */
  startMove(cookie: number, directory: Directory, name: BytePath): void {
    const moved = directory.children.get(name) ?? null;
    const rename = { directory, name, path: directory.path(name), moved };
    this.#moves.set(cookie, rename);
    for (const oldest of this.#moves.keys()) {
      if (this.#moves.size <= MOST_MOVES) break;
      this.#expire(oldest);
    }
    if (!moved) return;
    moved.detach();
    moved.moving = { events: [], unsurveyed: [] };
    const isPending = () => this.#moves.get(cookie) === rename;
    this.later(
      (run) => setTimeout(run, PAIR_MS),
      () => {
        // If the event loop was busy, IN_MOVED_TO may be queued already.
        if (isPending()) this.whenSettled(() => isPending() && this.#expire(cookie));
      },
    );
  }

  /** Takes the move with this cookie, or returns null. */
  takeMove(cookie: number): Rename | null {
    const rename = this.#moves.get(cookie) ?? null;
    this.#moves.delete(cookie);
    return rename;
  }

  /** Returns whether a move is the reverse of the one before: the kernel reports an exchange as two such moves. */
  isReverse(rename: Rename, to: BytePath | null): boolean {
    const last = this.#lastMove;
    this.#lastMove = { from: rename.path, to };
    return to !== null && last?.from === to && last.to === rename.path;
  }

  /** Releases the kernel watches. */
  [Symbol.dispose](): void {
    for (const cookie of this.#moves.keys()) this.#expire(cookie);
    this.discard(this.root);
  }

  /** Gives up waiting for IN_MOVED_TO: the directory has left the tree. */
  #expire(cookie: number): void {
    const moved = this.takeMove(cookie)?.moved;
    if (moved) this.discard(moved);
  }
}
