import { type BytePath, joinBytes } from '../../os/byte-path.ts';
import type { Names } from '../../os/directory-handle.ts';
import type { InotifyEvent } from '../../os/inotify.ts';
import type { Subscriber } from './kernel-watches.ts';

/** Receives the events of the directories of a tree. */
export interface EventSink {
  handle(directory: Directory, event: InotifyEvent): void;
}

/** The result of reading a directory, kept until all older events have been handled. */
export interface Look {
  /** Null when the directory was not found. */
  names: Names | null;
  /** Events since the watch was added, to be replayed afterwards. */
  readonly events: InotifyEvent[];
}

/** A directory of a watched tree, at the path that follows from the events handled so far. */
export class Directory implements Subscriber {
  parent: Directory | null;
  name: BytePath;
  readonly children = new Map<BytePath, Directory>();
  /** The kernel watch, or null while there is none. */
  descriptor: number | null = null;
  /** Whether its entries are known; from then on its events are applied. */
  surveyed = false;
  /** The read in progress; discarded when the directory or an ancestor moves. */
  look: Look | null = null;
  /** Number of failed attempts to find it. */
  misses = 0;
  /** Events of the subtree between IN_MOVED_FROM and IN_MOVED_TO. */
  held: [Directory, InotifyEvent][] | null = null;
  /** Removed from the tree: its events are ignored. */
  gone = false;

  readonly #sink: EventSink;

  constructor(parent: Directory | null, name: BytePath, sink: EventSink) {
    this.parent = parent;
    this.name = name;
    this.#sink = sink;
  }

  onEvent(event: InotifyEvent): void {
    this.#sink.handle(this, event);
  }

  /** Adds a directory below. */
  addChild(name: BytePath): Directory {
    const child = new Directory(this, name, this.#sink);
    this.children.set(name, child);
    return child;
  }

  /** The topmost ancestor: the tree's root, unless a move has detached this directory. */
  top(): Directory {
    let directory: Directory = this;
    while (directory.parent) directory = directory.parent;
    return directory;
  }

  /** Path relative to the topmost ancestor, whose own path is empty. */
  path(): BytePath {
    return this.parent ? joinBytes(this.parent.path(), this.name) : '';
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
    parent.children.set(name, this);
  }

  /** Itself, then all below, parents first. */
  *all(): Generator<Directory, void> {
    yield this;
    for (const child of this.children.values()) yield* child.all();
  }
}
