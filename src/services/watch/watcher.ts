import { realpath, stat } from 'node:fs/promises';
import { EnvdError } from '../../base/errors.ts';
import { bytePath } from '../../os/byte-path.ts';
import { about } from '../filesystem/errors.ts';
import type { WatchEvent } from './event.ts';
import { KernelWatches } from './kernel-watches.ts';
import { LocalWatch } from './local-watch.ts';
import { Backlog, Outbox } from './outbox.ts';

export interface WatchOptions {
  /** Whether directories below are watched too, also those that appear later. */
  readonly recursive: boolean;
  /** Whether network file systems may be watched, by polling. */
  readonly allowNetworkMounts: boolean;
  /** Ends the setting up; the watch itself ends by being disposed of. */
  readonly signal?: AbortSignal;
}

/** A live watch: whatever changes after it was handed out is reported, in order. */
export interface Watch extends Disposable {
  /**
   * Waits for events and takes them, at most 1024, in order. Null: the watched directory is gone, after its `remove`
   * or `rename` named `.` was taken; or the watch was disposed of. One call at a time.
   * Throws `resource_exhausted` when a new directory could not be watched. A reader that is too slow gets
   * `rescan` in place of what was dropped.
   */
  next(): Promise<readonly WatchEvent[] | null>;
  /** Takes what waits, at most 1024; empty when nothing does. Throws as `next` does. */
  take(): readonly WatchEvent[];
}

/** Watches directories. All watches share one inotify instance and one kernel watch a directory. */
export class Watcher implements Disposable {
  readonly #kernel = new KernelWatches();
  readonly #backlog = new Backlog();

  /**
   * Watches the directory at `path`, absolute; a link is followed, once. Resolves when everything below is watched.
   * Throws `not_found`, `invalid_argument` (no directory, a network file system without permission),
   * `resource_exhausted` (the kernel's limits).
   */
  async watch(path: string, options: WatchOptions): Promise<Watch> {
    const rootPath = await about(path, async () => bytePath(await realpath(path, { encoding: 'buffer' })));
    const status = await about(path, () => stat(path));
    if (!status.isDirectory()) {
      throw new EnvdError('invalid_argument', `path is not a directory: '${path}'`);
    }
    options.signal?.throwIfAborted();
    const outbox = new Outbox(path, this.#backlog);
    const { recursive, signal } = options;
    const watch = new LocalWatch({ kernel: this.#kernel, rootPath, recursive, outbox, enters: () => true });
    await about(path, () => watch.start(signal));
    return {
      next: () => outbox.next(),
      take: () => outbox.take(),
      [Symbol.dispose]: () => {
        watch[Symbol.dispose]();
        outbox[Symbol.dispose]();
      },
    };
  }

  [Symbol.dispose](): void {
    this.#kernel[Symbol.dispose]();
  }
}
