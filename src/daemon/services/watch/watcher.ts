import { within } from '../../../base/abort.ts';
import { debug } from '../../../base/program/debug.ts';
import type { Lanes } from '../../linux/lanes/lanes.ts';
import { MountTable } from '../../linux/paths/mounts.ts';
import { about } from '../../linux/system/errno.ts';
import type { WatchEvent, WatchSink } from './local/event.ts';
import { KernelWatches } from './local/kernel-watches.ts';
import { MixedWatch } from './mixed-watch.ts';
import { NetworkProcesses, NetworkWatch } from './network/watch.ts';
import { Backlog, Outbox } from './outbox.ts';
import { type Observer, PathWatch } from './path-watch.ts';
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
  readonly #kernel = new KernelWatches();
  readonly #processes = new NetworkProcesses();
  readonly #lanes: Lanes;
  readonly #backlog = new Backlog();
  readonly #mounts = new MountTable();
  readonly #watches = new Set<PathWatch>();
  #isChecking = false;

  constructor(lanes: Lanes) {
    this.#lanes = lanes;
    this.#kernel.onMountsChanged(() => this.#checkLater());
  }

  /**
   * Watches the directory at `path`, absolute and normalised. Links are resolved once. Resolves when everything
   * below is watched. Throws `not_found`, `invalid_argument` (no directory, a network file system without
   * permission), `resource_exhausted` (the kernel's limits), `deadline_exceeded` and `unavailable` (a network file
   * system does not answer).
   */
  async watch(path: string, options: WatchOptions): Promise<Watch> {
    const { recursive, allowNetworkMounts, signal } = options;
    const rootOptions = { recursive, allowNetworkMounts, mounts: this.#mounts, lanes: this.#lanes };
    const root = await findRoot(path, rootOptions);
    signal?.throwIfAborted();
    const watch = new PathWatch({
      root,
      recursive,
      outbox: new Outbox(path, this.#backlog),
      mounts: this.#mounts,
      observe: (visible, sink) => this.#observe(visible, recursive, sink),
      findAgain: (visible) => findRootAgain(visible, rootOptions),
    });
    const end = () => {
      this.#watches.delete(watch);
      debug('watch', 'ended', () => ({ watches: this.#watches.size }));
      watch[Symbol.dispose]();
    };
    this.#watches.add(watch);
    try {
      await about(path, () => watch.start(signal));
      debug('watch', 'begun', () => ({ watches: this.#watches.size, network: root.isNetwork }));
    } catch (error) {
      end();
      throw error;
    }
    return { next: (most) => watch.next(most), take: (most) => watch.take(most), [Symbol.dispose]: end };
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

  #observe(root: WatchRoot, recursive: boolean, sink: WatchSink): Observer {
    const processes = this.#processes;
    if (!root.isNetwork) return new MixedWatch({ kernel: this.#kernel, processes, root, recursive, sink });
    return new NetworkWatch({ processes, mount: root.mount, root: root.path, recursive, prefix: '', sink });
  }
}
