import type { InotifyEvent } from '../../../linux/inotify/inotify.ts';
import type { BytePath } from '../../../linux/paths/byte-path.ts';

/** PATH_MAX of limits.h: no system call takes a longer path. */
export const LONGEST_PATH = 4096;

/** Applies an event of the kernel watch of a directory. */
export type Apply = (directory: Directory, event: InotifyEvent) => void;

/** The names in a directory, which are kept until all older events have been handled. */
export interface Scan {
  /** `unknown` means that the parent of the directory was not at its path. */
  outcome: 'found' | 'missing' | 'unknown';
  /** How often the directory had been moved. A later move makes the result void. */
  readonly moves: number;
  /** The names that were found, and whether each is a directory. */
  readonly known: Map<BytePath, boolean>;
  /** The entries of `known` that have not been reported yet. */
  readonly unreported: Iterator<[BytePath, boolean]>;
  /** Events since the watch was added. They are applied when the names have been reported. */
  readonly events: InotifyEvent[];
  /** The number of `events` up to the end of the read, whose results the read may have seen. */
  overlapping: number;
  applied: number;
  /** Whether entries have been reported. From then on the result stays valid when the directory moves. */
  isAccepted: boolean;
}

/** A directory of a watched tree. Its path follows from the events that have been handled so far. */
export class Directory {
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
  scan: Scan | null = null;
  /** How often it was not found at its path. */
  timesMissing = 0;
  /** How many scans are void because the file system had changed meanwhile. */
  timesOutdated = 0;
  moves = 0;
  /** What waits for the arrival of this directory while it moves, between IN_MOVED_FROM and IN_MOVED_TO; otherwise null. */
  moving: Moving | null = null;
  /** Changes of its entries, by name, that an event may still explain. */
  conjectures: Map<BytePath, Conjecture> | null = null;
  /** Whether it was removed from the tree, with everything below it. */
  gone = false;

  readonly #apply: Apply;

  constructor(parent: Directory | null, name: BytePath, apply: Apply) {
    this.parent = parent;
    this.name = name;
    this.#apply = apply;
  }

  onEvent(event: InotifyEvent): void {
    this.#apply(this, event);
  }

  addChild(name: BytePath): Directory {
    const child = new Directory(this, name, this.#apply);
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

/** A change of an entry that is reported when no event up to then explains it. */
export interface Conjecture {
  /**
   * `written` means that it was written through a shared mapping before it was closed, and `exchanged` that it exists
   * although it was moved away (RENAME_EXCHANGE).
   */
  readonly what: 'written' | 'exchanged';
}
