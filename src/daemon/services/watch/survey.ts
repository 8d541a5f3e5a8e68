import { isSystemError } from '../../../base/errors.ts';
import type { BytePath } from '../../os/byte-path.ts';
import { DirectoryHandle, type Names } from '../../os/directory-handle.ts';
import type { InotifyEvent } from '../../os/inotify.ts';
import type { Directory, Look } from './directory.ts';
import type { KernelWatches } from './kernel-watches.ts';
import type { Placement } from './placement.ts';

/** Time after which reading directories yields to the event loop, in milliseconds. */
const SLICE_MS = 5;
/** Delay before a directory that was not found is tried again, in milliseconds; doubles each time. */
const RETRY_MS = 5;
/** The number of attempts (0.3 s) that the start of a watch waits for. */
const PATIENT_MISSES = 6;
/** The number of attempts (10 s) after which a directory counts as removed. */
const MAX_MISSES = 11;

const NOTHING: Names = { directories: [], others: [] };

/** What a survey needs of its tree. */
export interface Surveyed {
  readonly root: Directory;
  readonly recursive: boolean;
  /** Whether entries that are found are reported. */
  readonly live: boolean;
  /** Whether the directory at this path is to be surveyed. */
  enters(path: BytePath): boolean;
  tellCreated(directory: Directory, name: BytePath): void;
  /** Applies an event that was queued during the survey, which has found the entries `known`. */
  replay(directory: Directory, event: InotifyEvent, known: Set<BytePath>): void;
  /** The directory is not at its path in the tree, and no event explains that. */
  vanished(directory: Directory): void;
  /** All directories have been surveyed. */
  surveyed(): void;
  fail(error: unknown): void;
}

/**
 * Surveys directories: adds a watch to each, then reads its names. The tree follows the events and lags behind the file
 * system. The names are therefore accepted only after all events up to the read have been handled, and only if none of
 * them moved or removed the directory or an ancestor. Otherwise the directory is surveyed again.
 * See `docs/decisions/004-own-inotify.md`.
 */
export class Survey {
  readonly #kernel: KernelWatches;
  readonly #placement: Placement;
  readonly #tree: Surveyed;
  readonly #queue: Directory[] = [];
  /** Reads and delays in progress. */
  #pending = 0;
  #scheduled = false;
  #stopped = false;

  constructor(kernel: KernelWatches, placement: Placement, tree: Surveyed) {
    this.#kernel = kernel;
    this.#placement = placement;
    this.#tree = tree;
  }

  /** Surveys the root and all below. */
  start(): void {
    this.#queue.push(this.#tree.root);
    this.#goOn();
  }

  /** Surveys `directory` and all below after the queued events, which may affect it, have been handled. */
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
    if (looks.size > 0) this.#concludeLater(looks);
    this.#goOn();
  }

  #goOn(): void {
    if (this.#queue.length > 0) this.#schedule((run) => this.#kernel.inTurn(run));
    else if (this.#pending === 0) this.#tree.surveyed();
  }

  /** Null when the directory need not or cannot be surveyed now. */
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

  /** Watches the open directory; false when it is not at its path any more. */
  #watch(directory: Directory, look: Look, handle: DirectoryHandle): boolean {
    if (directory.descriptor !== null) return this.#placement.isAt(directory, handle.path);
    if (!this.#placement.watch(directory, handle.path)) return false;
    // A shared kernel watch also delivers events from before this subscription.
    if (this.#placement.isShared(directory)) {
      this.#kernel.whenPassed(() => {
        look.events.length = 0;
      });
    }
    return true;
  }

  /** Concludes the reads when all events up to now have been handled. */
  #concludeLater(looks: ReadonlyMap<Directory, Look>): void {
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
    // The directory or an ancestor has moved.
    if (directory.look !== look) this.request(directory);
    else if (look.names) this.#accept(directory, look.names, look.events);
    else this.#miss(directory);
  }

  #accept(directory: Directory, { directories, others }: Names, events: readonly InotifyEvent[]): void {
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

  /** Tries again later: the event of a move or removal comes shortly after it, later on a busy system. */
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

/** Null when there is no directory at `path`. */
function open(path: BytePath): DirectoryHandle | null {
  try {
    return new DirectoryHandle(path);
  } catch (error) {
    if (isSystemError(error, 'ENOENT', 'ENOTDIR')) return null;
    throw error;
  }
}
