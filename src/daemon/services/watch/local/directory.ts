import type { InotifyEvent } from '../../../linux/inotify/inotify.ts';
import type { BytePath } from '../../../linux/paths/byte-path.ts';
import type { WatchedDirectory } from './releases.ts';

/** PATH_MAX of limits.h: no system call takes a longer path. */
export const LONGEST_PATH = 4096;

/** What V8 needs for an entry of `Look.known`, in bytes, besides the characters of its name. */
const NAME_BYTES = 64;

/** Takes the events of all kernel watches of a tree. */
export interface EventReceiver {
  receive(directory: Directory, event: InotifyEvent): void;
}

/** The result of reading a directory, kept until all older events have been handled. */
export class DirectoryScan {
  /** `unknown`: its parent was not at its path. */
  outcome: 'found' | 'missing' | 'unknown' = 'unknown';
  /** The directory's moves so far: a later move makes the result void. */
  readonly moves: number;
  /** The names found, and whether each is a directory. */
  readonly known = new Map<BytePath, boolean>();
  /** Size of `known`, in bytes. */
  knownBytes = 0;
  /** Those that have not been reported yet. */
  readonly unreported = this.known.entries();
  /** Events since the watch was added, to be replayed afterwards. */
  readonly events: InotifyEvent[] = [];
  /** Entries have been reported: the result stays valid when the directory moves. */
  isAccepted = false;
  #replayed = 0;

  constructor(moves: number) {
    this.moves = moves;
  }

  addKnown(name: BytePath, isDirectory: boolean): void {
    this.known.set(name, isDirectory);
    this.knownBytes += name.length + NAME_BYTES;
  }

  /** Takes the next of `events`. */
  nextEvent(): InotifyEvent | null {
    return this.events[this.#replayed++] ?? null;
  }
}

/** A directory of a watched tree, at the path that follows from the events handled so far. */
export class Directory implements WatchedDirectory {
  parent: Directory | null;
  name: BytePath;
  readonly children = new Map<BytePath, Directory>();
  /** The kernel watch, or null while there is none. */
  descriptor: number | null = null;
  /** Whether its entries are known; from then on its events are applied. */
  surveyed = false;
  /** When its entries were reported, in milliseconds since the epoch, rounded up. */
  surveyedMs = 0;
  /** The read in progress. */
  look: DirectoryScan | null = null;
  /** Number of failed attempts to find it. */
  misses = 0;
  /** Number of attempts that were outrun by changes of the file system. */
  outran = 0;
  /** How often it was moved. */
  moves = 0;
  /** Between IN_MOVED_FROM and IN_MOVED_TO, of the directory that moves: what waits for its arrival. */
  moving: Moving | null = null;
  /** Renames of its entries, by the old name, that may be one half of an exchange (RENAME_EXCHANGE). */
  exchanges: Map<BytePath, Rename> | null = null;
  /** Whether it was removed from the tree, with everything below. */
  gone = false;

  readonly #receiver: EventReceiver;

  constructor(parent: Directory | null, name: BytePath, receiver: EventReceiver) {
    this.parent = parent;
    this.name = name;
    this.#receiver = receiver;
  }

  onEvent(event: InotifyEvent): void {
    this.#receiver.receive(this, event);
  }

  /** Adds a directory below. */
  addChild(name: BytePath): Directory {
    const child = new Directory(this, name, this.#receiver);
    this.children.set(name, child);
    return child;
  }

  /** The topmost ancestor: the tree's root, unless a move or removal has detached it. */
  top(): Directory {
    let directory: Directory = this;
    while (directory.parent) directory = directory.parent;
    return directory;
  }

  /**
   * Path of `entry`, or of itself, relative to the topmost ancestor, whose own path is empty. Null when no system call
   * would take it: many moves can make such paths.
   */
  path(entry: BytePath = ''): BytePath | null {
    let path = entry;
    for (let directory: Directory = this; directory.parent; directory = directory.parent) {
      path = path === '' ? directory.name : `${directory.name}/${path}`;
      if (path.length >= LONGEST_PATH) return null;
    }
    return path;
  }

  /** Removes it from its parent. */
  detach(): void {
    if (this.parent?.children.get(this.name) === this) this.parent.children.delete(this.name);
    this.parent = null;
  }

  /** Attaches it below `parent` as `name`. */
  place(parent: Directory, name: BytePath): void {
    this.parent = parent;
    this.name = name;
    this.moves++;
    parent.children.set(name, this);
  }
}

/** The first half of a move, as IN_MOVED_FROM tells it. */
export interface Rename {
  readonly directory: Directory;
  readonly name: BytePath;
  /** The old path, relative to the root; null: too long to be told. */
  readonly path: BytePath | null;
  /** The directory of the tree that moves; null for any other entry. */
  readonly moved: Directory | null;
}

/** What waits for the arrival of a directory that moves. */
export interface Moving {
  /** Events of the subtree. */
  readonly events: [Directory, InotifyEvent][];
  /** Directories of the subtree that are to be surveyed. */
  readonly unsurveyed: Directory[];
}
