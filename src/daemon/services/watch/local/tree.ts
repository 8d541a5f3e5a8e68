import {
  IN_ATTRIB,
  IN_DELETE_SELF,
  IN_IGNORED,
  IN_MOVE_SELF,
  IN_UNMOUNT,
  type InotifyEvent,
} from '../../../linux/inotify/inotify.ts';
import type { BytePath } from '../../../linux/paths/byte-path.ts';
import type { Ground } from './descent.ts';
import { Directory, type EventSink, type Look } from './directory.ts';
import { EntryEvents } from './entry-events.ts';
import type { WatchEventType } from './event.ts';
import type { KernelWatches } from './kernel-watches.ts';
import { PendingMoves } from './pending-moves.ts';
import { Placement } from './placement.ts';
import { Survey, type Surveyed } from './survey.ts';

/** Maximum number of events that wait for the survey or the arrival of a directory. */
const MOST_KEPT = 65_536;

/** The owner of a tree, to which it reports. */
export interface TreeOwner {
  readonly kernel: KernelWatches;
  readonly ground: Ground;
  readonly recursive: boolean;
  /** Whether the directory at this path is to be watched. */
  enters(path: BytePath): boolean;
  tell(type: WatchEventType, directory: BytePath, name: BytePath, movedFrom: BytePath | null): void;
  /** Everything is watched; events are reported from now on. Called once. */
  complete(): void;
  /** The tree differs from the file system, and no event explains it. */
  lost(): void;
  /** The root is, or may be, no longer at its path. */
  rootLeft(type: 'remove' | 'rename'): void;
  fail(error: unknown): void;
}

/** The directories of one watch. While they are surveyed for the first time, nothing is reported. */
export class Tree implements EventSink, Surveyed, Disposable {
  readonly root: Directory;
  readonly recursive: boolean;
  live = false;

  readonly #owner: TreeOwner;
  readonly #placement: Placement;
  readonly #survey: Survey;
  readonly #moves: PendingMoves;
  readonly #entries: EntryEvents;
  #stopped = false;

  constructor(owner: TreeOwner) {
    this.#owner = owner;
    this.recursive = owner.recursive;
    this.root = new Directory(null, '', this);
    this.#placement = new Placement(owner.kernel, this.root, owner.ground);
    this.#survey = new Survey(owner.kernel, this.#placement, this);
    this.#moves = new PendingMoves(owner.kernel, (directory) => this.#placement.discard(directory));
    this.#entries = new EntryEvents({
      kernel: owner.kernel,
      recursive: owner.recursive,
      placement: this.#placement,
      survey: this.#survey,
      moves: this.#moves,
      tell: (type, path, name, movedFrom) => this.#tell(type, path, name, movedFrom),
    });
  }

  /** Watches the root and all below. Throws inotify_add_watch(2)'s errors for the root. */
  start(): void {
    this.#placement.watchRoot();
    this.#survey.start();
  }

  /** Whether the root is still at its path. */
  isRooted(): boolean {
    return this.#placement.isInPlace(this.root);
  }

  handle(directory: Directory, event: InotifyEvent): void {
    if (this.#stopped) return;
    try {
      this.#dispatch(directory, event);
    } catch (error) {
      this.#owner.fail(error);
    }
  }

  enters(path: BytePath): boolean {
    return this.#owner.enters(path);
  }

  tellCreated(directory: Directory, name: BytePath): void {
    this.#entries.tell('create', directory, name);
  }

  replay(directory: Directory, event: InotifyEvent, known: Look['known']): void {
    this.#entries.replay(directory, event, known);
  }

  release(directory: Directory): void {
    this.#placement.release(directory);
  }

  surveyed(): void {
    if (this.live) return;
    this.live = true;
    this.#owner.complete();
  }

  vanished(directory: Directory): void {
    if (directory === this.root) this.#owner.lost();
    else this.#entries.vanished(directory);
  }

  overflowed(): void {
    this.#owner.lost();
  }

  fail(error: unknown): void {
    this.#owner.fail(error);
  }

  /** Ignores further events; the kernel watches remain. */
  stop(): void {
    this.#stopped = true;
    this.#survey.stop();
  }

  [Symbol.dispose](): void {
    this.stop();
    this.#moves[Symbol.dispose]();
    this.#placement.discard(this.root);
  }

  #tell(type: WatchEventType, path: BytePath, name: BytePath, movedFrom: BytePath | null): void {
    if (this.live && !this.#stopped) this.#owner.tell(type, path, name, movedFrom);
  }

  #dispatch(directory: Directory, event: InotifyEvent): void {
    const top = directory.top();
    if (top !== this.root) this.#keep(top.moving?.events, [directory, event]);
    else if (event.name === '') this.#handleSelf(directory, event.mask);
    else if (directory.look) this.#keep(directory.look.events, event);
    // Events before the survey are ignored: the survey sees their result.
    else if (directory.surveyed) this.#entries.apply(directory, event);
  }

  /** Keeps an event for later. */
  #keep<T>(events: T[] | undefined, event: T): void {
    if (events && events.push(event) > MOST_KEPT) this.#owner.lost();
  }

  /** Events of a watched directory itself. Except for the root, the watch of its parent reports them too. */
  #handleSelf(directory: Directory, mask: number): void {
    if (mask & IN_IGNORED) directory.descriptor = null;
    if (directory === this.root) this.#handleRoot(mask);
  }

  #handleRoot(mask: number): void {
    if (mask & (IN_DELETE_SELF | IN_UNMOUNT | IN_IGNORED)) this.#rootLeft('remove');
    else if (mask & IN_MOVE_SELF) this.#rootLeft('rename');
    // rmdir(2) causes IN_ATTRIB too.
    else if (mask & IN_ATTRIB && this.isRooted()) this.#tell('chmod', '', '.', null);
  }

  /** Before the tree is live the event may be older than this watch: check the path. */
  #rootLeft(type: 'remove' | 'rename'): void {
    if (this.live || !this.isRooted()) this.#owner.rootLeft(type);
  }
}
