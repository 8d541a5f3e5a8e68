import { isSystemError } from '../../../base/errors.ts';
import type { BytePath } from '../../os/byte-path.ts';
import { DirectoryHandle, type Names } from '../../os/directory-handle.ts';
import type { InotifyEvent } from '../../os/inotify.ts';
import type { Directory, Look } from './directory.ts';
import type { KernelWatches } from './kernel-watches.ts';
import type { Placement } from './placement.ts';

/** The event loop goes on with other things after so many ms of looking into directories. */
const SLICE_MS = 5;
/** What is not found is looked for again after this time, then after twice as long, and so on. */
const RETRY_MS = 5;
/** Setting up goes on without what is not found for 0.3 s. */
const PATIENT_MISSES = 6;
/** What is not found for 10 s, while no event says why, is not there. */
const MAX_MISSES = 11;

const NOTHING: Names = { directories: [], others: [] };

/** What a survey works for: the tree. */
export interface Surveyed {
  readonly root: Directory;
  readonly recursive: boolean;
  /** Whether entries that are found are told. */
  readonly live: boolean;
  /** Whether the survey goes into the directory at this path. */
  enters(path: BytePath): boolean;
  tellCreated(directory: Directory, name: BytePath): void;
  /** An event of the directory, whose entries until then are `known`. */
  replay(directory: Directory, event: InotifyEvent, known: Set<BytePath>): void;
  /** The directory is not where the tree has it, and no event says why. */
  vanished(directory: Directory): void;
  /** Nothing is left to look into. */
  surveyed(): void;
  fail(error: unknown): void;
}

/**
 * Looks into directories: puts a watch on each, then reads its names. The file system is ahead of the tree, which
 * follows the events; so what was seen counts only when all events until then have passed, and none of them has
 * moved or removed a directory on the way there. Else it is looked for again. `docs/decisions/004-own-inotify.md`.
 */
export class Survey {
  readonly #kernel: KernelWatches;
  readonly #placement: Placement;
  readonly #tree: Surveyed;
  readonly #queue: Directory[] = [];
  /** Looks and delays under way. */
  #pending = 0;
  #scheduled = false;
  #stopped = false;

  constructor(kernel: KernelWatches, placement: Placement, tree: Surveyed) {
    this.#kernel = kernel;
    this.#placement = placement;
    this.#tree = tree;
  }

  /** Looks into the root and all below. */
  start(): void {
    this.#queue.push(this.#tree.root);
    this.#goOn();
  }

  /** Looks into `directory` and all below as soon as the events at hand are worked off: they may say more of it. */
  request(directory: Directory): void {
    this.#queue.push(directory);
    this.#schedule((run) => this.#kernel.whenDrained(run));
  }

  stop(): void {
    this.#stopped = true;
  }

  #schedule(later: (run: () => void) => void): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    later(() => {
      this.#scheduled = false;
      this.#attempt(() => this.#slice());
    });
  }

  #attempt(step: () => void): void {
    if (this.#stopped) return;
    try {
      step();
    } catch (error) {
      this.#tree.fail(error);
    }
  }

  #slice(): void {
    const deadline = performance.now() + SLICE_MS;
    const looks = new Map<Directory, Look>();
    let next = 0;
    for (; next < this.#queue.length && performance.now() < deadline; next++) {
      const directory = this.#queue[next];
      const look = directory && this.#look(directory);
      if (look) looks.set(directory, look);
    }
    this.#queue.splice(0, next);
    if (looks.size > 0) this.#afterwards(looks);
    this.#goOn();
  }

  #goOn(): void {
    if (this.#queue.length > 0) this.#schedule((run) => this.#kernel.inTurn(run));
    else if (this.#pending === 0) this.#tree.surveyed();
  }

  /** Null when there is nothing to look into at the moment. */
  #look(directory: Directory): Look | null {
    if (directory.surveyed || directory.look) return null;
    const path = this.#placement.locate(directory);
    if (path === null || !(directory === this.#tree.root || this.#tree.enters(path))) return null;
    const look: Look = { names: null, events: [] };
    directory.look = look;
    using handle = open(path);
    if (handle && this.#watch(directory, look, handle)) {
      look.names = this.#tree.recursive ? handle.names(this.#tree.live) : NOTHING;
    }
    return look;
  }

  /** Whether the open directory is watched. */
  #watch(directory: Directory, look: Look, handle: DirectoryHandle): boolean {
    if (directory.descriptor !== null) return this.#placement.isAt(directory, handle.path);
    if (!this.#placement.watch(directory, handle.path)) return false;
    // Who shares a watch is told of what was before, too.
    if (this.#placement.isShared(directory)) {
      this.#kernel.whenPassed(() => {
        look.events.length = 0;
      });
    }
    return true;
  }

  /** Takes up what was seen when all events until now have passed. */
  #afterwards(looks: ReadonlyMap<Directory, Look>): void {
    this.#pending++;
    this.#kernel.whenPassed(() => {
      this.#pending--;
      this.#attempt(() => {
        for (const [directory, look] of looks) this.#conclude(directory, look);
        this.#goOn();
      });
    });
  }

  #conclude(directory: Directory, look: Look): void {
    if (directory.gone) return;
    // It has moved meanwhile, or one above it.
    if (directory.look !== look) this.request(directory);
    else if (look.names) this.#takeUp(directory, look.names, look.events);
    else this.#miss(directory);
  }

  #takeUp(directory: Directory, { directories, others }: Names, events: readonly InotifyEvent[]): void {
    directory.look = null;
    directory.surveyed = true;
    for (const name of directories) {
      this.#tree.tellCreated(directory, name);
      this.request(directory.addChild(name));
    }
    for (const name of others) this.#tree.tellCreated(directory, name);
    if (events.length === 0) return;
    const known = new Set([...directories, ...others]);
    for (const event of events) this.#tree.replay(directory, event, known);
  }

  /** The kernel tells of a move or removal a moment after it, or later when it is held up itself. */
  #miss(directory: Directory): void {
    this.#placement.cancel(directory);
    const count = ++directory.misses;
    if (count > (directory === this.#tree.root ? PATIENT_MISSES : MAX_MISSES)) {
      this.#tree.vanished(directory);
      return;
    }
    const awaited = count <= PATIENT_MISSES ? 1 : 0;
    this.#pending += awaited;
    const again = () => {
      this.#pending -= awaited;
      this.#attempt(() => this.request(directory));
    };
    setTimeout(again, RETRY_MS * 2 ** (count - 1)).unref();
  }
}

/** Null when there is no such directory. */
function open(path: BytePath): DirectoryHandle | null {
  try {
    return new DirectoryHandle(path);
  } catch (error) {
    if (isSystemError(error, 'ENOENT', 'ENOTDIR')) return null;
    throw error;
  }
}
