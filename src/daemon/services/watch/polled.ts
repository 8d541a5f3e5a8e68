import { randomUUID } from 'node:crypto';
import { EnvdError } from '../../../base/errors.ts';
import type { WatchEvent } from './event.ts';
import type { Watch, Watcher, WatchOptions } from './watcher.ts';

/** Maximum number of events in one answer, which is encoded in one turn of the event loop. */
const MOST_TAKEN = 8192;

/** Watches whose events are polled by clients; the queues between polls are bounded. */
export class PolledWatches implements Disposable {
  readonly #watcher: Watcher;
  readonly #watches = new Map<string, Watch>();

  constructor(watcher: Watcher) {
    this.#watcher = watcher;
  }

  /** Starts a watch; returns its id. Throws as `Watcher.watch` does. */
  async create(path: string, options: WatchOptions): Promise<string> {
    const watch = await this.#watcher.watch(path, options);
    const id = randomUUID();
    this.#watches.set(id, watch);
    return id;
  }

  /**
   * The events since the last call, in order, at most 8192; empty after the watched directory is gone. Throws `not_found`, and
   * `resource_exhausted` when a new directory could not be watched.
   */
  take(id: string): WatchEvent[] {
    const watch = this.#find(id);
    const events: WatchEvent[] = [];
    while (events.length < MOST_TAKEN) {
      const batch = watch.take();
      if (batch.length === 0) break;
      events.push(...batch);
    }
    return events;
  }

  /** Ends a watch. Throws `not_found`. */
  remove(id: string): void {
    const watch = this.#find(id);
    this.#watches.delete(id);
    watch[Symbol.dispose]();
  }

  [Symbol.dispose](): void {
    for (const watch of this.#watches.values()) watch[Symbol.dispose]();
    this.#watches.clear();
  }

  #find(id: string): Watch {
    const watch = this.#watches.get(id);
    if (!watch) throw new EnvdError('not_found', `watcher not found: '${id}'`);
    return watch;
  }
}
