import { within } from '../../../base/abort.ts';
import { debug } from '../../../base/program/debug.ts';
import type { Lanes } from '../../linux/lanes/lanes.ts';
import { MountTable } from '../../linux/paths/mounts.ts';
import { about } from '../../linux/system/errno.ts';
import type { WatchEvent, WatchSink } from './local/event.ts';
import { KernelWatches } from './local/kernel-watches.ts';
import { NetworkProcesses } from './network/process.ts';
import { observeDirectory } from './observer.ts';
import { Backlog, Outbox } from './outbox.ts';
import { PathWatch } from './path-watch.ts';
import { findRoot, findRootAgain, type WatchRoot } from './root.ts';

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
  readonly #kernel = new KernelWatches(() => this.#checkLater());
  readonly #processes = new NetworkProcesses();
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
    const mounts = this.#mounts;
    const rootOptions = { recursive, allowNetworkMounts, mounts, lanes: this.#lanes };
    const root = await findRoot(path, rootOptions);
    signal?.throwIfAborted();
    const engines = { kernel: this.#kernel, processes: this.#processes };
    const outbox = new Outbox(path, this.#backlog);
    const options = {
      root,
      recursive,
      outbox,
      mounts,
      observe: (visible: WatchRoot, sink: WatchSink, starting?: AbortSignal) =>
        observeDirectory(engines, visible, recursive, sink, starting),
      findAgain: (visible: WatchRoot) => findRootAgain(visible, rootOptions),
    };
    const watch = await about(path, () => PathWatch.start(options, signal));
    this.#watches.add(watch);
    debug('watch', 'watch started', () => ({ watches: this.open, network: root.isNetwork }));
    return {
      next: (most) => outbox.next(most),
      take: (most) => outbox.take(most),
      queued: () => outbox.queued(),
      [Symbol.dispose]: () => {
        this.#watches.delete(watch);
        debug('watch', 'watch ended', () => ({ watches: this.open }));
        watch[Symbol.dispose]();
      },
    };
  }

  /** Resolves when all local changes up to now are in the queues, or after a second, because there may be many of them. */
  async settled(): Promise<void> {
    const handedOut = new Promise<void>((resolve) => this.#kernel.whenSettled(resolve));
    await within(SETTLE_MS, handedOut, () => {});
  }

  [Symbol.dispose](): void {
    for (const watch of this.#watches) watch[Symbol.dispose]();
    this.#processes[Symbol.dispose]();
    this.#kernel[Symbol.dispose]();
  }

  /** Checks all watches in a later turn of the event loop, because several mounts often change together. */
  #checkLater(): void {
    if (this.#isChecking) return;
    this.#isChecking = true;
    this.#kernel.inTurn(() => {
      this.#isChecking = false;
      this.#mounts.read();
      for (const watch of this.#watches) watch.check();
    });
  }
}
