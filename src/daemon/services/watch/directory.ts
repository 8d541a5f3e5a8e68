import { type BytePath, joinBytes } from '../../os/byte-path.ts';
import type { Names } from '../../os/directory-handle.ts';
import type { InotifyEvent } from '../../os/inotify.ts';
import type { Subscriber } from './kernel-watches.ts';

/** Gets the events of the directories of a tree. */
export interface EventSink {
  handle(directory: Directory, event: InotifyEvent): void;
}

/** What was seen of a directory, until the events that are older have passed. */
export interface Look {
  /** Null: it was not found. */
  names: Names | null;
  /** What happened in it since it is watched, to be gone through afterwards. */
  readonly events: InotifyEvent[];
}

/** A directory of a watched tree, at the place where the events handed out so far have put it. */
export class Directory implements Subscriber {
  parent: Directory | null;
  name: BytePath;
  readonly children = new Map<BytePath, Directory>();
  /** The kernel watch, or null while there is none. */
  descriptor: number | null = null;
  /** Whether its entries are known; from then on its events are followed. */
  surveyed = false;
  /** Under way, and void when the directory or one above it moves meanwhile. */
  look: Look | null = null;
  /** How often it was not found. */
  misses = 0;
  /** Between IN_MOVED_FROM and IN_MOVED_TO: what happened in it meanwhile. */
  held: [Directory, InotifyEvent][] | null = null;
  /** No part of the tree any more: its events are nobody's. */
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

  /** Makes a directory below. */
  addChild(name: BytePath): Directory {
    const child = new Directory(this, name, this.#sink);
    this.children.set(name, child);
    return child;
  }

  /** The directory at the top, which is the tree's root unless a move has taken this one out. */
  top(): Directory {
    let directory: Directory = this;
    while (directory.parent) directory = directory.parent;
    return directory;
  }

  /** Relative to the top, which is the empty path itself. */
  path(): BytePath {
    return this.parent ? joinBytes(this.parent.path(), this.name) : '';
  }

  /** Takes it out of its parent. */
  detach(): void {
    if (this.parent?.children.get(this.name) === this) this.parent.children.delete(this.name);
    this.parent = null;
  }

  /** Puts it below `parent`, as `name`. */
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
