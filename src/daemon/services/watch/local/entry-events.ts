import {
  IN_ATTRIB,
  IN_CLOSE_WRITE,
  IN_CREATE,
  IN_DELETE,
  IN_ISDIR,
  IN_MODIFY,
  IN_MOVED_FROM,
  IN_MOVED_TO,
  type InotifyEvent,
} from '../../../linux/inotify/inotify.ts';
import type { BytePath } from '../../../linux/paths/byte-path.ts';
import { type Directory, LONGEST_PATH, type Look, type Moving } from './directory.ts';
import type { WatchEventType } from './event.ts';
import type { KernelWatches } from './kernel-watches.ts';
import type { PendingMoves } from './pending-moves.ts';
import type { Placement } from './placement.ts';
import { type Rename, Renames } from './renames.ts';
import type { Survey } from './survey.ts';

/** What the handling of entry events needs. */
export interface EntryEventsContext {
  readonly kernel: KernelWatches;
  readonly recursive: boolean;
  readonly placement: Placement;
  readonly survey: Survey;
  readonly moves: PendingMoves;
  /** `path`: that of the directory, relative to the root. */
  tell(type: WatchEventType, path: BytePath, name: BytePath, movedFrom: BytePath | null): void;
}

const ARRIVALS = IN_CREATE | IN_MOVED_TO;
const DEPARTURES = IN_DELETE | IN_MOVED_FROM;

/** The name of an unnamed temporary file (O_TMPFILE) in inotify events: `#` and the inode number. */
const UNNAMED = /^#\d+$/;

const NOTHING: Moving = { events: [], unsurveyed: [] };

/** Applies events of entries to the tree and reports each change to the reader once. */
export class EntryEvents {
  readonly #context: EntryEventsContext;
  readonly #renames = new Renames();

  constructor(context: EntryEventsContext) {
    this.#context = context;
  }

  /** Applies an event of an entry of a surveyed directory. */
  apply(directory: Directory, { mask, name, cookie }: InotifyEvent): void {
    const isDirectory = (mask & IN_ISDIR) !== 0 && this.#context.recursive;
    if (mask & (ARRIVALS | DEPARTURES)) this.#renames.dropCandidate(directory, name);
    if (mask & IN_CREATE) this.#appeared(directory, name, isDirectory);
    if (mask & IN_MOVED_TO) this.#movedTo(directory, name, isDirectory, cookie);
    if (mask & IN_MODIFY) this.#changed(directory, name, 'write');
    if (mask & IN_CLOSE_WRITE) this.#closed(directory, name);
    if (mask & IN_ATTRIB) this.#changed(directory, name, 'chmod');
    if (mask & IN_MOVED_FROM) this.#movedFrom(directory, name, cookie);
    if (mask & IN_DELETE) this.#deleted(directory, name);
  }

  /**
   * Applies an event that was queued during the survey, which has found the entries `known`, unless the survey has
   * already seen its result.
   */
  replay(directory: Directory, event: InotifyEvent, known: Look['known']): void {
    const { mask, name } = event;
    const isArrival = (mask & ARRIVALS) !== 0;
    if (known.has(name) === isArrival) return;
    if (isArrival) known.set(name, (mask & IN_ISDIR) !== 0);
    else if (mask & DEPARTURES) known.delete(name);
    this.apply(directory, event);
  }

  /** Reports a directory as removed that no longer exists, although no event has said so. */
  vanished(directory: Directory): void {
    if (directory.parent) this.#deleted(directory.parent, directory.name);
  }

  /** Tells an event, unless the path is longer than any that a client can name. */
  tell(type: WatchEventType, directory: Directory, name: BytePath, movedFrom: BytePath | null = null): void {
    const path = directory.path();
    if (path !== null && path.length + name.length + 1 < LONGEST_PATH)
      this.#context.tell(type, path, name, movedFrom);
  }

  /** Adds a directory and requests its survey. */
  #addDirectory(parent: Directory, name: BytePath): void {
    this.#context.survey.request(parent.addChild(name));
  }

  #appeared(directory: Directory, name: BytePath, isDirectory: boolean): void {
    this.#forget(directory, name);
    this.tell('create', directory, name);
    if (isDirectory) this.#addDirectory(directory, name);
  }

  #changed(directory: Directory, name: BytePath, type: 'write' | 'chmod'): void {
    if (UNNAMED.test(name) && !this.#context.placement.kindOf(directory, name)) return;
    this.tell(type, directory, name);
  }

  /**
   * Reports a file that has been changed after its last event, unless an event that is still queued explains that: it was
   * written through a shared mapping.
   */
  #closed(directory: Directory, name: BytePath): void {
    const { kernel, placement } = this.#context;
    const { descriptor } = directory;
    if (descriptor === null) return;
    const { at, isWritten, changes } = kernel.recentChanges.of(descriptor, name);
    if (isWritten) return;
    if ((placement.modifiedMsOf(directory, name) ?? 0) <= Math.max(at, directory.surveyedMs)) return;
    kernel.whenSettled(() => {
      if (kernel.recentChanges.of(descriptor, name).changes !== changes) return;
      if (placement.kindOf(directory, name)) this.tell('write', directory, name);
    });
  }

  #deleted(directory: Directory, name: BytePath): void {
    this.#forget(directory, name);
    this.tell('remove', directory, name);
  }

  #forget(directory: Directory, name: BytePath): void {
    const child = directory.children.get(name);
    if (child) this.#context.placement.discard(child);
  }

  #movedFrom(directory: Directory, name: BytePath, cookie: number): void {
    const child = directory.children.get(name);
    const path = directory.path(name);
    this.#renames.add(cookie, { directory, name, path, isFollowed: child !== undefined });
    this.tell('rename', directory, name);
    if (!child) return;
    child.detach();
    this.#context.moves.add(cookie, child);
  }

  #movedTo(directory: Directory, name: BytePath, isDirectory: boolean, cookie: number): void {
    const rename = this.#renames.take(cookie);
    const moved = this.#context.moves.take(cookie);
    this.#forget(directory, name);
    // A directory whose move out of the tree was assumed is reported as new, with all its entries.
    this.tell('create', directory, name, rename && (moved || !rename.isFollowed) ? rename.path : null);
    if (moved) this.#arrived(moved, directory, name);
    else if (isDirectory) this.#addDirectory(directory, name);
    if (rename && this.#renames.isReverse(rename, directory.path(name))) {
      this.#checkExchange(rename, directory, name, isDirectory);
    }
  }

  /**
   * Reports an exchange if an entry exists at the old path and no other event explains it. The events up to now are
   * awaited first: there may be many such renames, and most are explained.
   */
  #checkExchange(rename: Rename, directory: Directory, name: BytePath, isDirectory: boolean): void {
    const { kernel, placement } = this.#context;
    this.#renames.addCandidate(rename);
    kernel.whenSettled(() => {
      if (!this.#renames.isCandidate(rename)) return;
      const other = placement.kindOf(rename.directory, rename.name);
      if (!other) return this.#renames.dropCandidate(rename.directory, rename.name);
      kernel.whenSettled(() => {
        if (!this.#renames.isCandidate(rename)) return;
        this.#renames.dropCandidate(rename.directory, rename.name);
        if (!placement.locate(directory) || !placement.locate(rename.directory)) return;
        this.#exchanged(rename, directory, name, isDirectory, other === 'directory');
      });
    });
  }

  #exchanged(
    rename: Rename,
    directory: Directory,
    name: BytePath,
    isDirectory: boolean,
    isOther: boolean,
  ): void {
    if (isDirectory || directory.children.has(name)) {
      this.#deleted(directory, name);
      this.#appeared(directory, name, isDirectory);
    }
    this.#appeared(rename.directory, rename.name, isOther && this.#context.recursive);
  }

  /** Attaches a moved directory at its new path, and handles what has waited since IN_MOVED_FROM. */
  #arrived(moved: Directory, directory: Directory, name: BytePath): void {
    moved.place(directory, name);
    const { events, unsurveyed } = moved.moving ?? NOTHING;
    moved.moving = null;
    for (const each of unsurveyed) this.#context.survey.request(each);
    for (const [below, event] of events) below.onEvent(event);
  }
}
