import type { InotifyEvent } from '../../../linux/inotify/inotify.ts';
import type { BytePath } from '../../../linux/paths/byte-path.ts';
import type { WatchedDirectory } from './releases.ts';

/** PATH_MAX of limits.h: no system call takes a longer path. */
export const LONGEST_PATH = 4096;

/** The bytes that V8 needs for an entry of `DirectoryScan.known`, besides the characters of its name. */
const NAME_BYTES = 64;

/** Takes the events of all kernel watches of a tree. */
export interface EventReceiver {
  receive(directory: Directory, event: InotifyEvent): void;
}

/** The result of reading a directory. It is kept until all older events have been handled. */
export class DirectoryScan {
  /** `unknown` means that the parent of the directory was not at its path. */
  outcome: 'found' | 'missing' | 'unknown' = 'unknown';
  /** How often the directory had been moved. A later move makes the result void. */
  readonly moves: number;
  /** The names that were found, and whether each is a directory. */
  readonly known = new Map<BytePath, boolean>();
  knownBytes = 0;
  /** The entries of `known` that have not been reported yet. */
  readonly unreported = this.known.entries();
  /** Events since the watch was added. They are replayed when the names have been reported. */
  readonly events: InotifyEvent[] = [];
  /** Whether entries have been reported. From then on the result stays valid when the directory moves. */
  isAccepted = false;
  #replayed = 0;

  constructor(moves: number) {
    this.moves = moves;
  }

  addKnown(name: BytePath, isDirectory: boolean): void {
    this.known.set(name, isDirectory);
    this.knownBytes += name.length + NAME_BYTES;
  }

  nextEvent(): InotifyEvent | null {
    return this.events[this.#replayed++] ?? null;
  }
}

/** A directory of a watched tree. Its path follows from the events that have been handled so far. */
export class Directory implements WatchedDirectory {
  parent: Directory | null;
  name: BytePath;
  readonly children = new Map<BytePath, Directory>();
  /** The kernel watch, or null while there is none. */
  descriptor: number | null = null;
  /** Whether its entries are known. From then on its events are applied. */
  surveyed = false;
  /** When its entries had been reported, in milliseconds since the epoch, rounded up. */
  surveyedMs = 0;
  /** The result of a read that is under way or has not been accepted completely; otherwise null. */
  look: DirectoryScan | null = null;
  misses = 0;
  /** How many reads are void because the file system had changed meanwhile. */
  outran = 0;
  moves = 0;
  /** What waits for the arrival of this directory while it moves, between IN_MOVED_FROM and IN_MOVED_TO; otherwise null. */
  moving: Moving | null = null;
  /** Renames of its entries, by the old name, that may be one half of an exchange (RENAME_EXCHANGE). */
  exchanges: Map<BytePath, Rename> | null = null;
  /** Whether it was removed from the tree, with everything below it. */
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

  addChild(name: BytePath): Directory {
    const child = new Directory(this, name, this.#receiver);
    this.children.set(name, child);
    return child;
  }

  /** Returns the topmost ancestor: the tree's root, unless a move or a removal has detached a part of the tree. */
  top(): Directory {
    let directory: Directory = this;
    while (directory.parent) directory = directory.parent;
    return directory;
  }

  /**
   * Returns the path of `entry`, or of this directory, relative to the topmost ancestor, whose own path is empty. Returns
   * null when the path is too long for any system call: many moves can make such paths.
   */
  path(entry: BytePath = ''): BytePath | null {
    let path = entry;
    for (let directory: Directory = this; directory.parent; directory = directory.parent) {
      path = path === '' ? directory.name : `${directory.name}/${path}`;
      if (path.length >= LONGEST_PATH) return null;
    }
    return path;
  }

  detach(): void {
    if (this.parent?.children.get(this.name) === this) this.parent.children.delete(this.name);
    this.parent = null;
  }

  place(parent: Directory, name: BytePath): void {
    this.parent = parent;
    this.name = name;
    this.moves++;
    parent.children.set(name, this);
  }
}

export interface Rename {
  readonly directory: Directory;
  readonly name: BytePath;
  /** The old path, relative to the root; null when it is too long to be reported. */
  readonly path: BytePath | null;
  /** The directory of the tree that moves; null when another kind of entry moves. */
  readonly moved: Directory | null;
}

/** What waits for the arrival of a directory that moves. */
export interface Moving {
  /** Events of the directory and of those below it. */
  readonly events: [Directory, InotifyEvent][];
  /** Directories among these that the survey has yet to read. */
  readonly unsurveyed: Directory[];
}
