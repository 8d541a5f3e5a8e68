import { lstatSync } from 'node:fs';
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
import type { PendingMoves } from './pending-moves.ts';
import type { Placement } from './placement.ts';
import type { Survey } from './survey.ts';

/** What events of entries act on. */
export interface EntryEventsContext {
  readonly recursive: boolean;
  readonly placement: Placement;
  readonly survey: Survey;
  readonly moves: PendingMoves;
  tell(type: WatchEventType, name: BytePath, movedFrom: BytePath | null): void;
  /** A moved directory has taken this one's place, or the two have changed places. */
  displaced(directory: Directory): void;
}

const MAX_RENAMES = 16;

/** The name of a file that has none (O_TMPFILE), in events of its descriptor: `#` and the inode number. */
const UNNAMED = /^#\d+$/;

/** Old names of entries whose IN_MOVED_TO may follow, by cookie: the last few. */
class Renames {
  readonly #names = new Map<number, BytePath>();

  add(cookie: number, name: BytePath): void {
    this.#names.set(cookie, name);
    for (const oldest of this.#names.keys()) {
      if (this.#names.size <= MAX_RENAMES) break;
      this.#names.delete(oldest);
    }
  }

  take(cookie: number): BytePath | null {
    const name = this.#names.get(cookie) ?? null;
    this.#names.delete(cookie);
    return name;
  }
}

/** Follows what happens to the entries of directories: keeps the tree and tells the reader, each thing once. */
export class EntryEvents {
  readonly #context: EntryEventsContext;
  readonly #renames = new Renames();

  constructor(context: EntryEventsContext) {
    this.#context = context;
  }

  apply(directory: Directory, { mask, name, cookie }: InotifyEvent): void {
    const isDirectory = (mask & IN_ISDIR) !== 0 && this.#context.recursive;
    if (mask & IN_CREATE) this.#appeared(directory, name, isDirectory);
    if (mask & IN_MOVED_TO) this.#movedTo(directory, name, isDirectory, cookie);
    if (mask & IN_MODIFY) this.#changed(directory, name, 'write');
    if (mask & IN_ATTRIB) this.#changed(directory, name, 'chmod');
    if (mask & IN_MOVED_FROM) this.#movedFrom(directory, name, isDirectory, cookie);
    if (mask & IN_DELETE) this.#deleted(directory, name, isDirectory);
  }

  /**
   * Tells of an entry, unless there is no need to: while its directory settles, what the reader knows from the survey
   * is not told again, and nothing is told of an entry that came and went before.
   */
  tell(
    type: WatchEventType,
    directory: Directory,
    name: BytePath,
    movedFrom: BytePath | null = null,
  ): boolean {
    const { known, settling } = directory;
    if (settling && known?.has(name) === (type === 'create')) return false;
    if (type === 'create') known?.add(name);
    else if (type === 'remove' || type === 'rename') known?.delete(name);
    this.#context.tell(type, joinBytes(directory.path(), name), movedFrom);
    return true;
  }

  /** Takes back what was told of a directory that is not where the tree has it, and looks for what is there. */
  replace(directory: Directory): void {
    const { parent, name, untold } = directory;
    this.#retract(directory);
    if (parent) this.#expect(parent, name, untold);
  }

  #retract(directory: Directory): void {
    for (const name of directory.known ?? []) this.tell('remove', directory, name);
    this.#context.placement.discard(directory);
  }

  /** Has the survey look for a directory. */
  #expect(parent: Directory, name: BytePath, untold: boolean): void {
    const child = parent.addChild(name);
    child.untold = untold;
    this.#context.survey.request(child);
  }

  #appeared(directory: Directory, name: BytePath, isDirectory: boolean): void {
    const found = isDirectory ? directory.children.get(name) : undefined;
    const isKnown = found && (directory.settling || this.#context.placement.isRight(found));
    if (!isKnown || directory.settling || found.untold) this.tell('create', directory, name);
    if (isKnown) {
      found.untold = false;
      return;
    }
    if (found) this.#context.placement.discard(found);
    if (isDirectory) this.#expect(directory, name, false);
  }

  #changed(directory: Directory, name: BytePath, type: 'write' | 'chmod'): void {
    if (UNNAMED.test(name) && !this.#exists(directory, name)) return;
    this.tell(type, directory, name);
  }

  #exists(directory: Directory, name: BytePath): boolean {
    const path = this.#context.placement.locate(directory);
    try {
      return (
        path !== null && lstatSync(pathBuffer(joinBytes(path, name)), { throwIfNoEntry: false }) !== undefined
      );
    } catch {
      return false;
    }
  }

  #deleted(directory: Directory, name: BytePath, isDirectory: boolean): void {
    const child = directory.children.get(name);
    if (child && isDirectory && this.#stays(directory, child)) return;
    if (!child?.untold) this.tell('remove', directory, name);
    if (!child || child.gone) return;
    this.#context.placement.discard(child);
    // The survey was ahead: it found a directory in the file's place, whose CREATE is to come.
    if (!isDirectory) this.#expect(directory, name, true);
  }

  #movedFrom(directory: Directory, name: BytePath, isDirectory: boolean, cookie: number): void {
    const child = directory.children.get(name);
    if (child && isDirectory && this.#stays(directory, child)) return;
    if (!child?.untold && this.tell('rename', directory, name)) {
      this.#renames.add(cookie, joinBytes(directory.path(), name));
    }
    if (!child || child.gone) return;
    if (isDirectory) {
      child.detach();
      this.#context.moves.add(cookie, child);
    } else {
      this.#context.placement.discard(child);
      this.#expect(directory, name, true);
    }
  }

  /**
   * An event that is older than the survey is about another directory of the same name. Nobody knows of that one if
   * their parent was surveyed later, too; else the reader takes the contents of this one for those of that one.
   */
  #stays(directory: Directory, child: Directory): boolean {
    if (!child.settling || !this.#context.placement.isRight(child)) return false;
    if (directory.settling) return true;
    this.#retract(child);
    return false;
  }

  #movedTo(directory: Directory, name: BytePath, isDirectory: boolean, cookie: number): void {
    const moved = this.#context.moves.take(cookie);
    const from = this.#renames.take(cookie);
    const found = directory.children.get(name);
    if (found && this.#isAhead(directory, found)) {
      // Older than the survey, which has found what came after, or the moved directory itself.
      if (moved) this.#context.placement.discard(moved);
      return;
    }
    if (found) this.#replaced(directory, found);
    this.tell('create', directory, name, from);
    if (moved) this.#arrived(moved, directory, name);
    else if (isDirectory) this.#expect(directory, name, false);
  }

  /** Whether it is sure that the survey has found a directory later than an event says it was replaced. */
  #isAhead(directory: Directory, found: Directory): boolean {
    if (found.untold || !(directory.settling || found.settling)) return false;
    // Only an empty directory can be replaced.
    return (found.known?.size ?? 0) > 0 || this.#context.placement.isRight(found);
  }

  #replaced(directory: Directory, found: Directory): void {
    if (directory.settling || found.settling) {
      if (directory.settling) this.tell('remove', directory, found.name);
      this.#context.placement.discard(found);
    } else {
      this.#context.displaced(found);
    }
  }

  /** Puts a moved directory at its new place, and goes on with what was left undone meanwhile. */
  #arrived(moved: Directory, directory: Directory, name: BytePath): void {
    moved.place(directory, name);
    moved.untold = false;
    for (const each of moved.all()) if (!each.surveyed) this.#context.survey.request(each);
    const held = moved.held ?? [];
    moved.held = null;
    for (const [below, event] of held) below.onEvent(event);
  }
}
