import type { BytePath } from '../../os/byte-path.ts';
import {
  IN_ATTRIB,
  IN_CREATE,
  IN_DELETE,
  IN_DELETE_SELF,
  IN_IGNORED,
  IN_ISDIR,
  IN_MOVE_SELF,
  IN_MOVED_FROM,
  IN_MOVED_TO,
  IN_UNMOUNT,
  type InotifyEvent,
} from '../../os/inotify.ts';
import { Directory, type EventSink } from './directory.ts';
import { EntryEvents } from './entry-events.ts';
import type { WatchEventType } from './event.ts';
import type { KernelWatches } from './kernel-watches.ts';
import { PendingMoves } from './pending-moves.ts';
import { Placement } from './placement.ts';
import { Survey, type Surveyed } from './survey.ts';

/** Whom a tree belongs to. */
export interface TreeOwner {
  readonly kernel: KernelWatches;
  /** Resolved: no part of it a link. */
  readonly rootPath: BytePath;
  readonly recursive: boolean;
  /** Whether directories at this path are watched too. */
  enters(path: BytePath): boolean;
  tell(type: WatchEventType, name: BytePath, movedFrom: BytePath | null): void;
  /** Everything below the root is watched; from now on events are told. Called once. */
  complete(): void;
  /** The tree and the file system do not agree, for a reason that events do not explain. */
  lost(): void;
  /** The root is, or may be, no longer at its path. */
  rootLeft(type: 'remove' | 'rename'): void;
  fail(error: unknown): void;
}

const CHANGES = IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO;

/** The watched directories of one watch. They are surveyed in silence, then what happens to them is told. */
export class Tree implements EventSink, Surveyed, Disposable {
  readonly root: Directory;
  readonly recursive: boolean;
  changes = 0;
  live = false;

  readonly #owner: TreeOwner;
  readonly #placement: Placement;
  readonly #survey: Survey;
  readonly #moves: PendingMoves;
  readonly #entries: EntryEvents;
  /** Directories that others have taken the place of. */
  readonly #displaced = new Set<Directory>();
  #stopped = false;

  constructor(owner: TreeOwner) {
    this.#owner = owner;
    this.recursive = owner.recursive;
    this.root = new Directory(null, '', this);
    this.#placement = new Placement(owner.kernel, this.root, owner.rootPath);
    this.#survey = new Survey(owner.kernel, this.#placement, this);
    this.#moves = new PendingMoves(owner.kernel, (directory) => this.#placement.discard(directory));
    this.#entries = new EntryEvents({
      recursive: owner.recursive,
      placement: this.#placement,
      survey: this.#survey,
      moves: this.#moves,
      tell: (type, name, movedFrom) => this.#tell(type, name, movedFrom),
      displaced: (directory) => this.#displace(directory),
    });
  }

  /** Watches the root and all below. Throws inotify_add_watch(2)'s errors for the root. */
  plant(): void {
    this.#placement.watchRoot();
    this.#survey.start();
  }

  /** Whether the root is still at its path. */
  isRooted(): boolean {
    return this.#placement.isRight(this.root);
  }

  handle(directory: Directory, event: InotifyEvent): void {
    if (this.#stopped) return;
    try {
      if (directory.gone) this.#handleGone(directory, event.mask);
      else this.#dispatch(directory, event);
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

  surveyed(): void {
    if (this.live) return;
    this.live = true;
    this.#owner.complete();
  }

  misplaced(directory: Directory): void {
    if (directory.gone) return;
    const top = directory.top();
    const isTold = this.live && directory.surveyed;
    // Moved to where nobody watched yet: its IN_MOVED_TO does not come.
    if (top !== this.root) this.#placement.discard(top);
    else if (directory === top || (isTold && !directory.known)) this.#owner.lost();
    else if (directory.descriptor !== null) this.#entries.replace(directory);
    // Its removal comes; it is not told of what was not told.
    else if (!directory.untold) this.#placement.discard(directory);
  }

  fail(error: unknown): void {
    this.#owner.fail(error);
  }

  /** Follows events no more; the watches stay. */
  stop(): void {
    this.#stopped = true;
    this.#survey.stop();
  }

  [Symbol.dispose](): void {
    this.stop();
    this.#moves[Symbol.dispose]();
    for (const directory of this.#displaced) this.#placement.release(directory);
    this.#placement.discard(this.root);
  }

  #tell(type: WatchEventType, name: BytePath, movedFrom: BytePath | null): void {
    if (this.live) this.#owner.tell(type, name, movedFrom);
  }

  #dispatch(directory: Directory, event: InotifyEvent): void {
    const top = directory.top();
    if (top !== this.root) top.held?.push([directory, event]);
    else if (event.name === '') this.#handleSelf(directory, event.mask);
    else {
      if (event.mask & IN_ISDIR && event.mask & CHANGES) this.changes++;
      this.#entries.apply(directory, event);
    }
  }

  /** What happened to a watched directory itself; its parent's watch tells that of all but the root. */
  #handleSelf(directory: Directory, mask: number): void {
    if (mask & IN_IGNORED) this.#placement.dropped(directory);
    if (directory === this.root) this.#handleRoot(mask);
    else if (mask & IN_UNMOUNT) this.#owner.lost();
  }

  #handleRoot(mask: number): void {
    if (mask & (IN_DELETE_SELF | IN_UNMOUNT | IN_IGNORED)) this.#rootLeft('remove');
    else if (mask & IN_MOVE_SELF) this.#rootLeft('rename');
    // Losing the last link is an IN_ATTRIB as well.
    else if (mask & IN_ATTRIB && this.isRooted()) this.#tell('chmod', '.', null);
  }

  /** Before the tree is live the event may be older than the watch. */
  #rootLeft(type: 'remove' | 'rename'): void {
    if (this.live || !this.isRooted()) this.#owner.rootLeft(type);
  }

  /** Only a directory that has changed places with another (RENAME_EXCHANGE) moves after it was replaced. */
  #handleGone(directory: Directory, mask: number): void {
    if (mask & IN_IGNORED) this.#placement.dropped(directory);
    if (mask & IN_MOVE_SELF && this.#displaced.has(directory)) this.#owner.lost();
  }

  #displace(directory: Directory): void {
    for (const child of [...directory.children.values()]) this.#placement.discard(child);
    directory.detach();
    directory.gone = true;
    this.#displaced.add(directory);
    this.#owner.kernel.whenPassed(() => {
      this.#displaced.delete(directory);
      this.#placement.release(directory);
    });
  }
}
