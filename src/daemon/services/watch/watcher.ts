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
  /** Aborts the start of the watch. A started watch is ended by disposing of it. */
  readonly signal?: AbortSignal;
}

/** A live watch: every change after it was returned is reported, in order. */
export interface Watch extends Disposable {
  /**
   * Waits for events and takes them in order: at most `most` (by default 1024), and no more after 64 KiB of names and
   * paths. Null when the watched directory is gone (after its `remove` or `rename` event named `.`) or the watch has been
   * disposed of. One call at a time. Throws `resource_exhausted` when a new directory could not be watched. A reader that is
   * too slow gets `rescan` in place of dropped events.
   */
  next(most?: number): Promise<readonly WatchEvent[] | null>;
  /** Takes the queued events as `next` does, without waiting: there may be none. */
  take(most?: number): readonly WatchEvent[] | null;
}

const SETTLE_MS = 1000;

/** Watches directories. All watches share one inotify instance and one kernel watch per directory. */
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

  /** Number of open watches. */
  get open(): number {
    return this.#watches.size;
  }

  /** Number of `rescan` events that readers have taken. */
  get rescans(): number {
    return this.#backlog.rescans;
  }

  /**
   * Watches the directory at `path`, absolute and normalised. Links are resolved once. Resolves when everything
   * below is watched. Throws `not_found`, `invalid_argument` (no directory, a network file system without
   * permission), `resource_exhausted` (the kernel's limits), `deadline_exceeded` and `unavailable` (a network file
   * system does not answer).
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
      [Symbol.dispose]: () => {
        this.#watches.delete(watch);
        debug('watch', 'watch ended', () => ({ watches: this.open }));
        watch[Symbol.dispose]();
      },
    };
  }

  /** Resolves when the local changes up to now have been handed out, or after a second: the kernel may have many. */
  async settled(): Promise<void> {
    const handedOut = new Promise<void>((resolve) => this.#kernel.whenSettled(resolve));
    await within(SETTLE_MS, handedOut, () => {});
  }

  /** Ends all watches. */
  [Symbol.dispose](): void {
    for (const watch of this.#watches) watch[Symbol.dispose]();
    this.#processes[Symbol.dispose]();
    this.#kernel[Symbol.dispose]();
  }

  /** Mounts often change several at a time. */
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
