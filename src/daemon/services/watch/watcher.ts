import { within } from '../../../base/abort.ts';
import { EnvdError } from '../../../base/errors.ts';
import { debug } from '../../../base/program/debug.ts';
import type { Lanes } from '../../linux/lanes/lanes.ts';
import { isAtOrBelow, type Mount, MountTable } from '../../linux/paths/mounts.ts';
import { explaining } from '../../linux/system/errno.ts';
import { rootChange, type WatchEvent, type WatchSink } from './local/event.ts';
import { KernelWatches } from './local/kernel-watches.ts';
import { NetworkProcesses } from './network/process.ts';
import { type Engines, observeDirectory } from './observer.ts';
import { Backlog, Outbox } from './outbox.ts';
import { findRoot, findRootAgain, type RootOptions, type WatchRoot } from './root.ts';

export interface WatchOptions {
  /** Whether all directories below are watched too, including later ones. */
  readonly recursive: boolean;
  /** Whether network file systems may be watched, by polling. */
  readonly allowNetworkMounts: boolean;
  /** Aborts the start of the watch. A watch that was started ends when it is disposed of. */
  readonly signal?: AbortSignal;
}

/** A live watch, which reports every change after it was returned, in order. */
export interface Watch extends Disposable {
  /**
   * Waits for events and takes them in order: at most `most` (by default 1024), and no more after 64 KiB of names and paths.
   * Returns null after the `remove` or `rename` event named `.`, which tells that the watched directory is gone, and when the
   * watch was disposed of. A reader that is too slow gets `rescan` in place of dropped events. One call may wait at a time.
   * Throws `resource_exhausted` when a new directory could not be watched.
   */
  next(most?: number): Promise<readonly WatchEvent[] | null>;
  /** Takes the queued events as `next` does, but does not wait, so the result may be empty. */
  take(most?: number): readonly WatchEvent[] | null;
  /** Yields the queued events, which stay in the queue. */
  queued(): Iterable<WatchEvent>;
}

/** How long `settled` waits, in milliseconds. */
const SETTLE_MS = 1000;

/** Watches directories. All watches share one inotify instance, and one kernel watch for each directory. */
export class Watcher implements Disposable {
  readonly #engines: Engines = {
    kernel: new KernelWatches(() => void this.#checkLater()),
    processes: new NetworkProcesses(),
  };
  readonly #lanes: Lanes;
  readonly #backlog = new Backlog();
  readonly #mounts = new MountTable();
  readonly #watches = new Set<PathWatch>();
  #isChecking = false;

  constructor(lanes: Lanes) {
    this.#lanes = lanes;
  }

  get open(): number {
    return this.#watches.size;
  }

  /** The number of `rescan` events that readers have taken. */
  get rescans(): number {
    return this.#backlog.rescans;
  }

  /**
   * Watches the directory at `path`, which is absolute and normalized. Links are resolved once. Resolves when everything is
   * watched. Throws `not_found`, `invalid_argument` when the path is no directory or on a network file system without
   * permission, `resource_exhausted` at the kernel's limits, and `deadline_exceeded` or `unavailable` when a network file
   * system does not answer.
   */
  async watch(path: string, { recursive, allowNetworkMounts, signal }: WatchOptions): Promise<Watch> {
    const options = { recursive, allowNetworkMounts, mounts: this.#mounts, lanes: this.#lanes };
    const root = await findRoot(path, options);
    signal?.throwIfAborted();
    const outbox = new Outbox(path, this.#backlog);
    const watch = new PathWatch(root, options, outbox, this.#engines, () => this.#watches.delete(watch));
    await explaining(path, () => watch.start(signal));
    this.#watches.add(watch);
    debug('watch', 'watch started', () => ({ watches: this.open, network: root.isNetwork }));
    return watch;
  }

  /** Resolves when all local changes up to now are in the queues, or after a second, because there may be many of them. */
  async settled(): Promise<void> {
    await within(SETTLE_MS, this.#engines.kernel.settled(), () => {});
  }

  [Symbol.dispose](): void {
    for (const watch of this.#watches) watch[Symbol.dispose]();
    this.#engines.processes[Symbol.dispose]();
    this.#engines.kernel[Symbol.dispose]();
  }

  /** Checks all watches in a later turn of the event loop, because several mounts often change together. */
  async #checkLater(): Promise<void> {
    if (this.#isChecking) return;
    this.#isChecking = true;
    await this.#engines.kernel.turn();
    this.#isChecking = false;
    this.#mounts.read();
    for (const watch of this.#watches) watch.check();
  }
}

interface Outcome {
  readonly error: Error | null;
  /** What happened to the root, if that ended the observer. */
  readonly last: 'remove' | 'rename' | null;
}

/** An observer of what is visible at the path of a watch. */
interface Observation {
  readonly observer: Disposable;
  /** Whether its changes are passed on. */
  isCurrent: boolean;
  /** How it ended, or null. */
  outcome: Outcome | null;
}

/**
 * Watches what is visible at a path. When a mount has covered or uncovered something there, it starts a new observer. Once
 * that is live it replaces the other one, and the reader gets `rescan`.
 */
class PathWatch implements Watch {
  readonly #options: RootOptions;
  readonly #outbox: Outbox;
  readonly #engines: Engines;
  readonly #onClosed: () => void;
  readonly #closing = new AbortController();
  #root: WatchRoot;
  /** The mounts at the time when `#root` was last known to be what is visible at the path. */
  #mounts: readonly Mount[];
  /** Null until the first observer has started. */
  #current: Observation | null = null;
  #isStarting = true;

  constructor(root: WatchRoot, options: RootOptions, outbox: Outbox, engines: Engines, onClosed: () => void) {
    this.#root = root;
    this.#mounts = root.mounts;
    this.#options = options;
    this.#outbox = outbox;
    this.#engines = engines;
    this.#onClosed = onClosed;
  }

  /** Resolves when everything is watched. Throws what `observeDirectory` throws. */
  async start(signal?: AbortSignal): Promise<void> {
    try {
      this.#current = await this.#observe(true, signal);
    } catch (error) {
      this[Symbol.dispose]();
      throw error;
    }
    this.#started();
  }

  next(most?: number): Promise<readonly WatchEvent[] | null> {
    return this.#outbox.next(most);
  }

  take(most?: number): readonly WatchEvent[] | null {
    return this.#outbox.take(most);
  }

  queued(): Iterable<WatchEvent> {
    return this.#outbox.queued();
  }

  /** Call it when the mount table has been read again. It replaces the observer, or ends the watch, if that is needed. */
  check(): void {
    if (this.#isStarting || this.#isOver) return;
    // An unmount ends the observer of what was mounted. The news of either may come first, so the mounts are looked at
    // first.
    if (this.#isRemounted()) void this.#replace();
    else if (this.#current?.outcome) this.#end(this.#current.outcome);
  }

  [Symbol.dispose](): void {
    this.#closing.abort();
    this.#drop();
    this.#outbox[Symbol.dispose]();
    this.#onClosed();
  }

  get #isOver(): boolean {
    return this.#closing.signal.aborted;
  }

  /** Starts an observer. The `rescan` of a later one covers its changes until it replaces the one before. */
  async #observe(isCurrent: boolean, signal?: AbortSignal): Promise<Observation> {
    const observation: Partial<Observation> & Omit<Observation, 'observer'> = { isCurrent, outcome: null };
    let last: Outcome['last'] = null;
    const sink: WatchSink = {
      push: (change) => {
        const { type, name } = change;
        // The observer ends after this change. `Outcome` passes it on, unless another observer takes over.
        if (name === '.' && (type === 'remove' || type === 'rename')) last = type;
        else if (observation.isCurrent) this.#outbox.push(change);
      },
      end: (error) => {
        observation.outcome = { error, last };
        if (observation === this.#current) this.#checkNow();
      },
    };
    const observer = await observeDirectory(this.#engines, this.#root, this.#options.recursive, sink, signal);
    return Object.assign(observation, { observer });
  }

  #started(): void {
    this.#isStarting = false;
    this.#checkNow();
  }

  #checkNow(): void {
    this.#options.mounts.read();
    this.check();
  }

  #isRemounted(): boolean {
    const { mounts, recursive } = this.#options;
    const changed = mounts.changedSince(this.#mounts);
    this.#mounts = mounts.last;
    const { path } = this.#root;
    return changed.some((mount) => isAtOrBelow(mount, path) || (recursive && isAtOrBelow(path, mount)));
  }

  async #replace(): Promise<void> {
    const { signal } = this.#closing;
    this.#isStarting = true;
    try {
      this.#root = await findRootAgain(this.#root, this.#options);
      signal.throwIfAborted();
      this.#mounts = this.#root.mounts;
      const next = await this.#observe(false, signal);
      this.#drop();
      this.#current = next;
    } catch (error) {
      if (!this.#isOver) this.#end(outcomeOf(error));
      return;
    }
    if (this.#isOver) return this.#drop();
    this.#current.isCurrent = true;
    this.#outbox.rescan();
    this.#started();
  }

  #drop(): void {
    if (!this.#current) return;
    this.#current.isCurrent = false;
    this.#current.observer[Symbol.dispose]();
  }

  #end({ error, last }: Outcome): void {
    this.#closing.abort();
    this.#drop();
    if (last) this.#outbox.push(rootChange(last));
    this.#outbox.end(error);
  }
}

function outcomeOf(error: unknown): Outcome {
  if (error instanceof EnvdError && error.kind === 'not_found') return { error: null, last: 'remove' };
  return { error: error instanceof Error ? error : new Error(String(error)), last: null };
}
