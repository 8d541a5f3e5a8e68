import { setTimeout as delay } from 'node:timers/promises';
import { EnvdError } from '../../../../base/errors.ts';
import { monotonicMs } from '../../../../base/monotonic.ts';
import type { InotifyEvent } from '../../../linux/inotify/inotify.ts';
import { type BytePath, displayPath } from '../../../linux/paths/byte-path.ts';
import type { Mount } from '../../../linux/paths/mounts.ts';
import { type Apply, Directory, LONGEST_PATH, type Rename } from './directory.ts';
import { rootChange, type WatchEventType, type WatchSink } from './event.ts';
import type { KernelWatches } from './kernel-watches.ts';
import { type Ground, isInPlace, type PlacedTree } from './places.ts';

/**
 * A directory counts as moved out of the tree when no IN_MOVED_TO has followed IN_MOVED_FROM for this long, in milliseconds.
 */
const PAIR_MS = 10;
/** The most moves whose IN_MOVED_TO is awaited. */
const MOST_MOVES = 16;
/** The start of a watch also waits for directories that are made within this time, in milliseconds. */
const PATIENCE_MS = 1000;

export interface TreeOptions {
  readonly kernel: KernelWatches;
  readonly ground: Ground;
  readonly recursive: boolean;
  /** Returns whether the directory at this path is to be watched. */
  readonly enters: (path: BytePath) => boolean;
  /** Takes the changes. It gets `rescan` in place of those that were lost. */
  readonly sink: WatchSink;
}

/**
 * The directories of one watch. `applyEvent` changes them by an event of the kernel, and reports each change of the file
 * system once; `surveyTree` reads the directories that are not known yet. The tree lags behind the file system.
 */
export class Tree implements PlacedTree, Disposable {
  readonly kernel: KernelWatches;
  readonly ground: Ground;
  readonly recursive: boolean;
  readonly enters: (path: BytePath) => boolean;
  root: Directory;
  readonly unsurveyed: Directory[] = [];
  /** Directories that must be surveyed before the tree is live. */
  readonly awaited = new Set<Directory>();
  isOver = false;
  readonly #sink: WatchSink;
  readonly #apply: Apply;
  readonly #live = Promise.withResolvers<void>();
  /** Whether all directories are watched. Changes are reported from then on. */
  #isLive = false;
  /** Whether it was live before events were lost. */
  #wasLive = false;
  /** The root before events were lost. The directories below it keep their kernel watches until the tree is live again. */
  #formerRoot: Directory | null = null;
  #patientUntil = 0;
  mounts: readonly Mount[] | null = null;
  #wakeSurvey: () => void = () => {};
  /** The last moves for which no IN_MOVED_TO has come, by cookie. */
  readonly #moves = new Map<number, Rename>();
  #lastMove: { readonly from: BytePath | null; readonly to: BytePath | null } | null = null;

  /** `apply` is called for each event of a kernel watch. */
  constructor(
    { kernel, ground, recursive, enters, sink }: TreeOptions,
    apply: (tree: Tree, directory: Directory, event: InotifyEvent) => void,
  ) {
    this.#apply = (directory, event) => apply(this, directory, event);
    this.kernel = kernel;
    this.ground = ground;
    this.recursive = recursive;
    this.enters = enters;
    this.#sink = sink;
    this.root = this.#newRoot();
  }

  /** Resolves when everything is watched for the first time. Rejects with the reason why that is impossible. */
  get live(): Promise<void> {
    return this.#live.promise;
  }

  get isLive(): boolean {
    return this.#isLive;
  }

  async hasUnsurveyed(): Promise<void> {
    if (this.unsurveyed.length > 0) return;
    await new Promise<void>((resolve) => {
      this.#wakeSurvey = resolve;
    });
  }

  /** Reports a change of an entry, unless its path is longer than any that a client can name. */
  report(
    type: WatchEventType,
    directory: Directory,
    name: BytePath,
    movedFrom: BytePath | null = null,
  ): void {
    if (!this.#isLive || this.isOver) return;
    const path = directory.path();
    if (path === null || path.length + name.length + 1 >= LONGEST_PATH) return;
    this.#sink.push({ type, directory: path, name, movedFrom });
  }

  /** Adds a directory, which the survey reads later. */
  addDirectory(parent: Directory, name: BytePath): void {
    this.enqueue(parent.addChild(name), this.isPatient);
  }

  /** Lets the survey read a directory. `isAwaited`: the tree is not live before that. */
  enqueue(directory: Directory, isAwaited = false): void {
    if (isAwaited) this.awaited.add(directory);
    this.unsurveyed.push(directory);
    this.#wakeSurvey();
  }

  /** Reports the removal of an entry, and removes its directory from the tree. */
  removeEntry(directory: Directory, name: BytePath): void {
    this.forget(directory, name);
    this.report('remove', directory, name);
  }

  /** Call it when directories were surveyed: without others to wait for, the tree is live. */
  surveyed(): void {
    if (this.#isLive || this.isOver || this.awaited.size > 0) return;
    this.#isLive = true;
    if (this.#formerRoot) this.#discard(this.#formerRoot);
    this.#formerRoot = null;
    // Changes are reported from now on, so the reader misses none after its rescan.
    if (this.#wasLive) this.#sink.push(rootChange('rescan'));
    this.#live.resolve();
  }

  /**
   * Begins anew, because the tree differs from the file system and no event explains that. The reader gets `rescan` when
   * everything is watched.
   */
  renew(): void {
    if (this.#formerRoot) this.#discard(this.root);
    else this.#formerRoot = this.root;
    this.#wasLive ||= this.#isLive;
    this.#isLive = false;
    this.#giveUpMoves();
    this.unsurveyed.length = 0;
    this.awaited.clear();
    this.root = this.#newRoot();
  }

  /** Ends the tree if its root has left its path. */
  checkRoot(type: 'remove' | 'rename'): void {
    if (!this.isOver && !isInPlace(this, this.root)) this.leaveRoot(type);
  }

  /** Ends the tree, whose root has left its path. */
  leaveRoot(type: 'remove' | 'rename'): void {
    if (!this.#isLive && !this.#wasLive) {
      this.fail(new EnvdError('not_found', `path not found: '${displayPath(this.ground.path)}'`));
      return;
    }
    this.#sink.push(rootChange(type));
    this.#end(null);
  }

  fail(error: unknown): void {
    this.#live.reject(error);
    this.#end(error instanceof Error ? error : new Error(String(error)));
  }

  [Symbol.dispose](): void {
    if (this.isOver) return;
    this.isOver = true;
    this.#giveUpMoves();
    for (const root of [this.#formerRoot, this.root]) if (root) this.#discard(root);
    this.#wakeSurvey();
  }

  get isPatient(): boolean {
    return !this.#isLive && monotonicMs() < this.#patientUntil;
  }

  #newRoot(): Directory {
    const root = new Directory(null, '', this.#apply);
    this.#patientUntil = monotonicMs() + PATIENCE_MS;
    this.enqueue(root, true);
    return root;
  }

  #end(error: Error | null): void {
    if (this.isOver) return;
    this[Symbol.dispose]();
    this.#sink.end(error);
  }

  /** Returns whether a move is the reverse of the one before: the kernel reports an exchange as two such moves. */
  isReverse(rename: Rename, to: BytePath | null): boolean {
    const last = this.#lastMove;
    this.#lastMove = { from: rename.path, to };
    return to !== null && last?.from === to && last.to === rename.path;
  }

  /** Detaches what IN_MOVED_FROM has moved, until IN_MOVED_TO tells its new place or the time for that is over. */
  startMove(cookie: number, directory: Directory, name: BytePath): void {
    const moved = directory.children.get(name) ?? null;
    const rename = { directory, name, path: directory.path(name), moved };
    // A reader could not tell which of two entries that left the same path arrives: the first is told as new.
    for (const [earlier, { path }] of this.#moves)
      if (this.#moves.size >= MOST_MOVES || path === rename.path) this.#expire(earlier);
    this.#moves.set(cookie, rename);
    if (!moved) return;
    moved.detach();
    moved.moving = { events: [], unsurveyed: [] };
    void this.#awaitArrival(cookie, rename);
  }

  async #awaitArrival(cookie: number, rename: Rename): Promise<void> {
    await delay(PAIR_MS);
    if (this.#moves.get(cookie) !== rename) return;
    // If the event loop was busy, IN_MOVED_TO may be queued already.
    await this.kernel.settled();
    if (this.#moves.get(cookie) === rename) this.#expire(cookie);
  }

  /** Takes the move with this cookie, or returns null. */
  takeMove(cookie: number): Rename | null {
    const rename = this.#moves.get(cookie) ?? null;
    this.#moves.delete(cookie);
    return rename;
  }

  /** Gives up waiting for IN_MOVED_TO: the directory has left the tree. */
  #expire(cookie: number): void {
    const moved = this.takeMove(cookie)?.moved;
    if (moved) this.#discard(moved);
  }

  #giveUpMoves(): void {
    for (const cookie of this.#moves.keys()) this.#expire(cookie);
  }

  /** Removes the directory of this name, if there is one, with everything below it. */
  forget(parent: Directory, name: BytePath): void {
    const child = parent.children.get(name);
    if (child) this.#discard(child);
  }

  /** Removes a directory and everything below it from the tree. */
  #discard(directory: Directory): void {
    directory.gone = true;
    directory.moving = null;
    directory.detach();
    this.kernel.releaseTree(directory);
  }
}
