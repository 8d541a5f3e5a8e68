import { EnvdError } from '../../../base/errors.ts';
import { uniqueId } from '../../linux/system/unique-id.ts';
import type { WatchEvent } from './local/event.ts';
import type { Watch, Watcher, WatchOptions } from './watcher.ts';

/** Maximum number of watches: clients may forget to remove them. */
const MOST_WATCHES = 4096;
/** Maximum size of the names and paths of all events for a later program, in UTF-16 units. */
const MOST_HANDED_OVER = 8 * 1024 * 1024;

/** How a client wants to be told of changes. */
export interface PolledOptions extends Pick<WatchOptions, 'recursive' | 'allowNetworkMounts'> {
  /** Whether the client wants entries in events. */
  readonly includeEntry: boolean;
}

/** A watch, for a later program. */
export interface WatchState {
  readonly id: string;
  readonly path: string;
  /** Earlier programs do not write `includeEntry`. */
  readonly options: Omit<PolledOptions, 'includeEntry'> & Partial<PolledOptions>;
  /** Events that nobody has taken. */
  readonly events: readonly WatchEvent[];
}

interface Polled {
  readonly path: string;
  readonly options: PolledOptions;
  /** Null while it is started again for an earlier program. */
  watch: Watch | null;
  /** Why it could not be started again, or null. */
  failure: unknown;
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
  async create(path: string, options: PolledOptions): Promise<string> {
    if (this.#watches.size + this.#starting >= this.#most) {
      const text = `too many watchers: ${this.#most} are open, remove those that are not used`;
      throw new EnvdError('resource_exhausted', text);
    }
    const id = uniqueId();
    this.#starting++;
    const watch = await this.#watcher.watch(path, options).finally(() => this.#starting--);
    this.#watches.set(id, { path, options, watch, failure: null, earlier: [] });
    return id;
  }

  /**
   * The watches for a later program, with their events so far, which stay here, too. Events that are too large to hand over are left
   * out: each watch gets a `rescan` in the later program anyway.
   */
  get state(): WatchState[] {
    let left = MOST_HANDED_OVER;
    return [...this.#watches].map(([id, polled]) => {
      const { path, options } = polled;
      const events: WatchEvent[] = [];
      try {
        for (const part of this.take(id)) events.push(...part);
      } catch {
        // It has ended; watching it again tells why.
      }
      polled.earlier = events;
      for (const event of events) left -= event.name.length + event.path.length;
      return { id, path, options, events: left < 0 ? [] : events };
    });
  }

  /**
   * Watches for an earlier program. What has changed meanwhile is not known: after the events of the earlier program comes a
   * `rescan`, or the removal of a directory that is gone. `onFailure` is called for a directory that cannot be watched for
   * another reason, which its client is told after those events.
   */
  async continueFrom(
    states: readonly WatchState[],
    onFailure: (path: string, error: unknown) => void,
  ): Promise<void> {
    for (const { id, path, options, events } of states) {
      const includeEntry = options.includeEntry ?? false;
      const known = {
        path,
        options: { ...options, includeEntry },
        watch: null,
        failure: null,
        earlier: events,
      };
      this.#watches.set(id, known);
    }
    for (const { id, path, options } of states) {
      try {
        const watch = await this.#watcher.watch(path, options);
        const polled = this.#watches.get(id);
        if (polled) polled.watch = watch;
        // It was removed meanwhile.
        else watch[Symbol.dispose]();
        this.#addLast(id, 'rescan');
      } catch (error) {
        const isGone = error instanceof EnvdError && error.kind === 'not_found';
        if (isGone) this.#addLast(id, 'remove');
        else onFailure(path, error);
        const polled = this.#watches.get(id);
        if (polled) polled.failure = isGone ? goneError(id) : error;
      }
    }
  }

  /** How the client wants to be told. Throws `not_found`. */
  optionsOf(id: string): PolledOptions {
    return this.#find(id).options;
  }

  /**
   * The events since the last call, in order, in parts of at most `most` events; each part is taken when it is asked for.
   * Throws `not_found` where there is no such watch, also when all events of one whose directory is gone have been taken,
   * and `resource_exhausted` once when a new directory could not be watched.
   */
  *take(id: string, most?: number): Generator<readonly WatchEvent[], void> {
    const polled = this.#find(id);
    let part: readonly WatchEvent[] | null;
    try {
      part = takePart(polled, most);
      if (part === null) throw goneError(id);
    } catch (error) {
      this.remove(id);
      throw error;
    }
    while (part && part.length > 0) {
      yield part;
      try {
        part = takePart(polled, most);
      } catch {
        // The next call throws it: this one has events to return.
        return;
      }
    }
  }

  /** The same with all that has happened before the call, as far as it is of this guest. */
  async takeUpToNow(id: string, most?: number): Promise<Iterable<readonly WatchEvent[]>> {
    this.#find(id);
    await this.#watcher.settled();
    return this.take(id, most);
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

  /** Adds an event after those of the earlier program, unless they tell that the directory is gone. */
  #addLast(id: string, type: 'rescan' | 'remove'): void {
    const polled = this.#watches.get(id);
    const isGone = (event: WatchEvent) => event.name === '.' && /^(remove|rename)$/.test(event.type);
    if (!polled || polled.earlier.some(isGone)) return;
    polled.earlier = [...polled.earlier, { type, name: '.', path: polled.path, movedFrom: null }];
  }

  #find(id: string): Polled {
    const watch = this.#watches.get(id);
    if (!watch) throw notFound(id);
    return watch;
  }
}

/** Null at the end of the watch. Throws what ended it. */
function takePart(polled: Polled, most = 1024): readonly WatchEvent[] | null {
  const { watch, failure, earlier } = polled;
  if (earlier.length > 0) {
    polled.earlier = earlier.slice(most);
    return earlier.slice(0, most);
  }
  if (failure !== null) throw failure;
  return watch ? watch.take(most) : [];
}

function notFound(id: string, reason = ''): EnvdError {
  return new EnvdError('not_found', `watcher not found: '${id}'${reason}`);
}

function goneError(id: string): EnvdError {
  return notFound(id, ': its directory is gone');
}
