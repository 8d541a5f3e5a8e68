import { randomUUID } from 'node:crypto';
import { EnvdError } from '../../../base/errors.ts';
import type { WatchEvent } from './event.ts';
import type { Watch, Watcher, WatchOptions } from './watcher.ts';

/** Maximum number of events in one answer, which is encoded in one turn of the event loop. */
const MOST_TAKEN = 8192;

/** Maximum number of watches: clients may forget to remove them. */
const MOST_WATCHES = 4096;

/** A watch, for a later program. */
export interface WatchState {
  readonly id: string;
  readonly path: string;
  readonly options: Pick<WatchOptions, 'recursive' | 'allowNetworkMounts'>;
  /** Events that nobody has taken. */
  readonly events: readonly WatchEvent[];
}

interface Polled {
  readonly path: string;
  readonly options: WatchState['options'];
  /** Null while it is started again for an earlier program. */
  watch: Watch | null;
  /** Events of the earlier program, ahead of those of the watch. */
  earlier: readonly WatchEvent[];
}

/** Watches whose events are polled by clients; the queues between polls are bounded. */
export class PolledWatches implements Disposable {
  readonly #watcher: Watcher;
  readonly #watches = new Map<string, Polled>();
  readonly #most: number;
  #starting = 0;

  /** `most`: how many watches there may be. */
  constructor(watcher: Watcher, most = MOST_WATCHES) {
    this.#watcher = watcher;
    this.#most = most;
  }

  /** Starts a watch; returns its id. Throws as `Watcher.watch` does, and `resource_exhausted` when there are too many. */
  async create(path: string, options: WatchOptions): Promise<string> {
    if (this.#watches.size + this.#starting >= this.#most) {
      const text = `too many watchers: ${this.#most} are open, remove those that are not used`;
      throw new EnvdError('resource_exhausted', text);
    }
    this.#starting++;
    const watch = await this.#watcher.watch(path, options).finally(() => this.#starting--);
    const id = randomUUID();
    const { recursive, allowNetworkMounts } = options;
    this.#watches.set(id, { path, options: { recursive, allowNetworkMounts }, watch, earlier: [] });
    return id;
  }

  /** The watches for a later program, with all events so far, which stay here, too. */
  get state(): WatchState[] {
    return [...this.#watches].map(([id, polled]) => {
      const { path, options } = polled;
      polled.earlier = this.#takeAll(id);
      return { id, path, options, events: polled.earlier };
    });
  }

  /**
   * Watches for an earlier program. What has changed meanwhile is not known: after the events of the earlier program comes a
   * `rescan`. `onFailure` is called for a directory that cannot be watched any more; its watch is forgotten.
   */
  async continueFrom(
    states: readonly WatchState[],
    onFailure: (path: string, error: unknown) => void,
  ): Promise<void> {
    for (const { id, path, options, events } of states)
      this.#watches.set(id, { path, options, watch: null, earlier: events });
    for (const { id, path, options } of states) {
      try {
        this.#started(id, await this.#watcher.watch(path, options));
      } catch (error) {
        this.#watches.delete(id);
        onFailure(path, error);
      }
    }
  }

  /**
   * The events since the last call, in order, at most 8192; empty after the watched directory is gone. Throws
   * `not_found`, and `resource_exhausted` when a new directory could not be watched.
   */
  take(id: string): readonly WatchEvent[] {
    const polled = this.#find(id);
    const { watch, earlier } = polled;
    if (earlier.length > 0) {
      polled.earlier = earlier.slice(MOST_TAKEN);
      return earlier.slice(0, MOST_TAKEN);
    }
    const events: WatchEvent[] = [];
    while (watch && events.length < MOST_TAKEN) {
      const batch = watch.take();
      if (batch.length === 0) break;
      events.push(...batch);
    }
    return events;
  }

  /** The same with all that has happened before the call, as far as it is of this guest. */
  async takeUpToNow(id: string): Promise<readonly WatchEvent[]> {
    this.#find(id);
    await this.#watcher.settled();
    return this.take(id);
  }

  /** Ends a watch. Throws `not_found`. */
  remove(id: string): void {
    const { watch } = this.#find(id);
    this.#watches.delete(id);
    watch?.[Symbol.dispose]();
  }

  [Symbol.dispose](): void {
    for (const { watch } of this.#watches.values()) watch?.[Symbol.dispose]();
    this.#watches.clear();
  }

  #takeAll(id: string): WatchEvent[] {
    const events: WatchEvent[] = [];
    try {
      for (let taken = this.take(id); taken.length > 0; taken = this.take(id)) events.push(...taken);
    } catch {
      // It cannot watch a new directory; watching it again tells that again.
    }
    return events;
  }

  /** Removed meanwhile: it is not wanted any more. */
  #started(id: string, watch: Watch): void {
    const polled = this.#watches.get(id);
    if (!polled) {
      watch[Symbol.dispose]();
      return;
    }
    polled.watch = watch;
    const { path } = polled;
    polled.earlier = [...polled.earlier, { type: 'rescan', name: '.', path, movedFrom: null }];
  }

  #find(id: string): Polled {
    const watch = this.#watches.get(id);
    if (!watch) throw new EnvdError('not_found', `watcher not found: '${id}'`);
    return watch;
  }
}
