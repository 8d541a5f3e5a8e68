import { lstatSync, type Stats } from 'node:fs';
import { type BytePath, joinBytes, pathBuffer } from '../../os/byte-path.ts';
import {
  IN_ATTRIB,
  IN_CREATE,
  IN_DELETE,
  IN_ISDIR,
  IN_MODIFY,
  IN_MOVED_FROM,
  IN_MOVED_TO,
  type InotifyEvent,
} from '../../os/inotify.ts';
import type { Directory } from './directory.ts';
import type { WatchEventType } from './event.ts';
import type { KernelWatches } from './kernel-watches.ts';
import type { PendingMoves } from './pending-moves.ts';
import type { Placement } from './placement.ts';
import { type Rename, Renames } from './renames.ts';
import type { Survey } from './survey.ts';

/** What events of entries act on. */
export interface EntryEventsContext {
  readonly kernel: KernelWatches;
  readonly recursive: boolean;
  readonly placement: Placement;
  readonly survey: Survey;
  readonly moves: PendingMoves;
  tell(type: WatchEventType, name: BytePath, movedFrom: BytePath | null): void;
}

const ARRIVALS = IN_CREATE | IN_MOVED_TO;
const DEPARTURES = IN_DELETE | IN_MOVED_FROM;

/** The name of a file that has none (O_TMPFILE), in events of its descriptor: `#` and the inode number. */
const UNNAMED = /^#\d+$/;

/** Follows what happens to the entries of directories: keeps the tree and tells the reader, each thing once. */
export class EntryEvents {
  readonly #context: EntryEventsContext;
  readonly #renames = new Renames();

  constructor(context: EntryEventsContext) {
    this.#context = context;
  }

  /** What happens to an entry of a directory that has been surveyed. */
  apply(directory: Directory, { mask, name, cookie }: InotifyEvent): void {
    const isDirectory = (mask & IN_ISDIR) !== 0 && this.#context.recursive;
    if (mask & (ARRIVALS | DEPARTURES)) this.#renames.acquit(directory, name);
    if (mask & IN_CREATE) this.#appeared(directory, name, isDirectory);
    if (mask & IN_MOVED_TO) this.#movedTo(directory, name, isDirectory, cookie);
    if (mask & IN_MODIFY) this.#changed(directory, name, 'write');
    if (mask & IN_ATTRIB) this.#changed(directory, name, 'chmod');
    if (mask & IN_MOVED_FROM) this.#movedFrom(directory, name, cookie);
    if (mask & IN_DELETE) this.#deleted(directory, name);
  }

  /**
   * An event from about the time of the survey, which has found the entries `known`: it is followed unless the
   * survey has seen what came of it.
   */
  replay(directory: Directory, event: InotifyEvent, known: Set<BytePath>): void {
    const { mask, name } = event;
    const isArrival = (mask & ARRIVALS) !== 0;
    if (known.has(name) === isArrival) return;
    if (isArrival) known.add(name);
    else if (mask & DEPARTURES) known.delete(name);
    this.apply(directory, event);
  }

  /** A directory is not there any more, for a reason that no event has given. */
  vanished(directory: Directory): void {
    if (directory.parent) this.#deleted(directory.parent, directory.name);
  }

  tell(type: WatchEventType, directory: Directory, name: BytePath, movedFrom: BytePath | null = null): void {
    this.#context.tell(type, joinBytes(directory.path(), name), movedFrom);
  }

  /** Has the survey look for a directory. */
  #expect(parent: Directory, name: BytePath): void {
    this.#context.survey.request(parent.addChild(name));
  }

  #appeared(directory: Directory, name: BytePath, isDirectory: boolean): void {
    this.#forget(directory, name);
    this.tell('create', directory, name);
    if (isDirectory) this.#expect(directory, name);
  }

  #changed(directory: Directory, name: BytePath, type: 'write' | 'chmod'): void {
    if (UNNAMED.test(name) && !this.#find(joinBytes(directory.path(), name))) return;
    this.tell(type, directory, name);
  }

  /** What is at a path now, relative to the root. */
  #find(path: BytePath): Stats | null {
    try {
      return lstatSync(pathBuffer(this.#context.placement.resolve(path)), { throwIfNoEntry: false }) ?? null;
    } catch {
      return null;
    }
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
    const path = joinBytes(directory.path(), name);
    this.#renames.add(cookie, { directory, name, path, isFollowed: child !== undefined });
    this.tell('rename', directory, name);
    if (!child) return;
    this.#context.placement.detach(child);
    this.#context.moves.add(cookie, child);
  }

  #movedTo(directory: Directory, name: BytePath, isDirectory: boolean, cookie: number): void {
    const rename = this.#renames.take(cookie);
    const moved = this.#context.moves.take(cookie);
    this.#forget(directory, name);
    // Of a directory that was given up as having left, everything is told anew.
    this.tell('create', directory, name, rename && (moved || !rename.isFollowed) ? rename.path : null);
    if (moved) this.#arrived(moved, directory, name);
    else if (isDirectory) this.#expect(directory, name);
    if (rename && this.#renames.takesBack(rename, joinBytes(directory.path(), name))) {
      this.#suspectExchange(rename, directory, name, isDirectory);
    }
  }

  /** If there is something at the place it has left, which no other event explains, the two have changed places. */
  #suspectExchange(rename: Rename, directory: Directory, name: BytePath, isDirectory: boolean): void {
    const other = this.#find(rename.path);
    if (!other) return;
    this.#renames.suspect(rename);
    this.#context.kernel.whenPassed(() => {
      const { placement } = this.#context;
      if (!this.#renames.convict(rename)) return;
      if (!placement.locate(directory) || !placement.locate(rename.directory)) return;
      if (isDirectory || directory.children.has(name)) {
        this.#deleted(directory, name);
        this.#appeared(directory, name, isDirectory);
      }
      this.#appeared(rename.directory, rename.name, other.isDirectory() && this.#context.recursive);
    });
  }

  /** Puts a moved directory at its new place, and goes on with what was left undone meanwhile. */
  #arrived(moved: Directory, directory: Directory, name: BytePath): void {
    moved.place(directory, name);
    for (const each of moved.all()) if (!each.surveyed) this.#context.survey.request(each);
    const held = moved.held ?? [];
    moved.held = null;
    for (const [below, event] of held) below.onEvent(event);
  }
}
