import { isSystemError } from '../../base/errors.ts';
import { type BytePath, joinBytes } from '../../os/byte-path.ts';
import { DirectoryHandle } from '../../os/directory-handle.ts';
import type { Directory } from './directory.ts';
import type { KernelWatches } from './kernel-watches.ts';
import type { Placement } from './placement.ts';

/** The event loop goes on with other things after so many ms of looking into directories. */
const SLICE_MS = 5;
/** What is not found for so many ms, while no event says why, is not there: the kernel tells of a move after it. */
const CERTAIN_MS = 20;
const RETRY_MS = 5;

/** What a survey works for: the tree. */
export interface Surveyed {
  readonly root: Directory;
  readonly recursive: boolean;
  /** Grows with each directory that was made, moved or deleted. */
  readonly changes: number;
  /** Whether entries that are found are told. */
  readonly live: boolean;
  /** Whether the survey goes into the directory at this path. */
  enters(path: BytePath): boolean;
  tellCreated(directory: Directory, name: BytePath): void;
  /** It is certain that the directory is not where the tree has it. */
  misplaced(directory: Directory): void;
  /** Nothing is left to look into. */
  surveyed(): void;
  fail(error: unknown): void;
}

/**
 * Puts watches on directories, then looks into them, in this order: what is made in between is seen twice, not missed.
 *
 * The tree follows the events, the file system is ahead of them. So a directory may not be found at its place (an
 * ancestor was renamed), or another may be there by now. Such a finding is believed only when it stays the same while
 * events pass and no directory changes in them.
 */
export class Survey {
  readonly #kernel: KernelWatches;
  readonly #placement: Placement;
  readonly #tree: Surveyed;
  #queue: Directory[] = [];
  #retries: Directory[] = [];
  #marks = 0;
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
      this.#run();
    });
  }

  #run(): void {
    if (this.#stopped) return;
    try {
      this.#slice();
    } catch (error) {
      this.#tree.fail(error);
    }
  }

  #slice(): void {
    const deadline = performance.now() + SLICE_MS;
    const seen: Directory[] = [];
    let next = 0;
    for (; next < this.#queue.length && performance.now() < deadline; next++) {
      const directory = this.#queue[next];
      if (directory && this.#survey(directory)) seen.push(directory);
    }
    this.#queue.splice(0, next);
    if (seen.length > 0) this.#settleLater(seen);
    if (this.#retries.length > 0) this.#retryLater();
    this.#goOn();
  }

  #goOn(): void {
    if (this.#queue.length > 0) this.#schedule((run) => this.#kernel.inTurn(run));
    else if (this.#marks === 0) this.#tree.surveyed();
  }

  /** Whether the directory was looked into. */
  #survey(directory: Directory): boolean {
    const path = directory.surveyed ? null : this.#placement.locate(directory);
    if (path === null || !this.#enters(directory, path)) return false;
    using handle = open(path);
    if (!this.#secure(directory, path, handle)) return false;
    if (directory.untold && directory.parent) {
      directory.untold = false;
      this.#tree.tellCreated(directory.parent, directory.name);
    }
    if (this.#tree.recursive) this.#scan(directory, path, handle);
    return true;
  }

  #enters(directory: Directory, path: BytePath): boolean {
    return directory === this.#tree.root || this.#tree.enters(path);
  }

  /** Whether the directory is watched, and the one that is open. */
  #secure(directory: Directory, path: BytePath, handle: DirectoryHandle | null): handle is DirectoryHandle {
    if (!handle) this.#miss(directory, path, directory);
    else if (directory.descriptor === null) return this.#watch(directory, path, handle.path);
    else if (this.#placement.isAt(directory, handle.path)) return true;
    else this.#miss(directory, path, directory);
    return false;
  }

  /** Watches for `directory`, whose place is `path`, what is at `source`. */
  #watch(directory: Directory, path: BytePath, source: BytePath): boolean {
    const placed = this.#placement.watch(directory, source);
    if (placed !== 'watched') {
      this.#miss(directory, path, placed === 'missing' ? directory : placed);
      return false;
    }
    if (this.#tree.live) directory.known = new Set();
    return true;
  }

  #scan(directory: Directory, path: BytePath, handle: DirectoryHandle): void {
    directory.missed = null;
    directory.surveyed = true;
    const { directories, others } = handle.names(this.#tree.live);
    for (const name of directories) this.#found(directory, path, name, handle);
    for (const name of others) this.#tree.tellCreated(directory, name);
  }

  #found(directory: Directory, path: BytePath, name: BytePath, handle: DirectoryHandle): void {
    // An event was faster.
    if (directory.children.has(name)) return;
    const child = directory.addChild(name);
    // Told before it is watched it could come twice: by the IN_MOVED_TO that brings it here, with all its contents.
    if (this.#tree.live) {
      const childPath = joinBytes(path, name);
      child.untold = true;
      if (this.#tree.enters(childPath) && !this.#watch(child, childPath, `${handle.path}/${name}`)) return;
      child.untold = false;
      this.#tree.tellCreated(directory, name);
    }
    this.#queue.push(child);
  }

  /** Tries again later, until it is certain that `wrong` is not where the tree has it. */
  #miss(directory: Directory, path: BytePath, wrong: Directory): void {
    const { changes } = this.#tree;
    const now = performance.now();
    const { missed } = directory;
    const isSame = missed?.path === path && missed.changes === changes;
    directory.missed = isSame ? missed : { path, changes, since: now };
    // A directory on its way arrives with the next events, if at all.
    const isAway = wrong.top() !== this.#tree.root;
    const isCertain = isAway ? missed?.path === path : isSame && now - missed.since > CERTAIN_MS;
    if (isCertain) this.#tree.misplaced(wrong);
    if (!isCertain || wrong !== directory) this.#retries.push(directory);
  }

  /** Has `seen` settle when the events until now have passed. */
  #settleLater(seen: readonly Directory[]): void {
    const { changes } = this.#tree;
    this.#whenPassed(() => {
      for (const directory of seen) this.#settle(directory, this.#tree.changes !== changes);
    });
  }

  #retryLater(): void {
    const retries = this.#retries.splice(0);
    const now = performance.now();
    const isFirst = retries.some(({ missed }) => now - (missed?.since ?? now) < RETRY_MS);
    this.#whenPassed(
      () => {
        for (const directory of retries) this.#retry(directory);
      },
      isFirst ? 0 : RETRY_MS,
    );
  }

  /** Does `next`, then goes on, when the events until now, or until after the delay, have passed. */
  #whenPassed(next: () => void, delayMs = 0): void {
    this.#marks++;
    const passed = () => {
      if (this.#stopped) return;
      this.#marks--;
      next();
      if (this.#retries.length > 0) this.#retryLater();
      if (this.#queue.length > 0) this.#schedule((run) => this.#kernel.whenDrained(run));
      this.#goOn();
    };
    if (delayMs === 0) this.#kernel.whenPassed(passed);
    else setTimeout(() => this.#kernel.whenPassed(passed), delayMs);
  }

  #settle(directory: Directory, verify: boolean): void {
    directory.settling = false;
    if (verify) this.#verify(directory);
    else directory.known = null;
  }

  #retry(directory: Directory): void {
    if (directory.surveyed) this.#verify(directory);
    else this.#queue.push(directory);
  }

  /** Directories have changed since it was looked into: whether it is the one that is at its place. */
  #verify(directory: Directory): void {
    const path = this.#placement.locate(directory);
    if (path === null || directory.descriptor === null) return;
    if (!this.#placement.isAt(directory, path)) {
      this.#miss(directory, path, directory);
      return;
    }
    directory.missed = null;
    directory.known = null;
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
