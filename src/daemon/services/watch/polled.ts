import { EnvdError } from '../../../base/errors.ts';
import { uniqueId } from '../../linux/system/unique-id.ts';
import type { WatchEvent } from './local/event.ts';
import type { Watch, Watcher, WatchOptions } from './watcher.ts';

/** The most watches that may be open, because clients may forget to remove them. */
const MOST_WATCHES = 4096;
/** The most characters (UTF-16 units) of names and paths that all events for a later program may have. */
const MOST_HANDED_OVER = 8 * 1024 * 1024;

export interface PolledOptions extends Pick<WatchOptions, 'recursive' | 'allowNetworkMounts'> {
  /** Whether events contain the entry that changed. */
  readonly includeEntry: boolean;
}

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
  /** Null until the watch of an earlier program was started again. */
  watch: Watch | null;
  /** Why the watch of an earlier program could not be started again, or null. */
  failure: unknown;
  /** Events that an earlier program left. They come before those of `watch`. */
  earlier: readonly WatchEvent[];
}

/** Keeps watches whose events clients poll. The queues between polls are bounded. */
export class PolledWatches implements Disposable {
  readonly #watcher: Watcher;
  readonly #watches = new Map<string, Polled>();
  readonly #most: number;
  #starting = 0;

  constructor(watcher: Watcher, most = MOST_WATCHES) {
    this.#watcher = watcher;
    this.#most = most;
  }

  /** Starts a watch; returns its id. Throws what `Watcher.watch` throws, and `resource_exhausted` when too many are open. */
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
   * Returns the watches for a later program, with copies of their events so far, which stay in their queues. An upgrade that is
   * refused must change nothing. Events beyond `MOST_HANDED_OVER` are left out, because each watch gets a `rescan` in the later
   * program anyway.
   */
  get state(): WatchState[] {
    let left = MOST_HANDED_OVER;
    return Array.from(this.#watches, ([id, { path, options, watch, earlier }]) => {
      const events: WatchEvent[] = [];
      for (const part of [earlier, watch?.queued() ?? []])
        for (const event of part) {
          left -= event.name.length + event.path.length;
          if (left < 0) return { id, path, options, events: [] };
          events.push(event);
        }
      return { id, path, options, events };
    });
  }

  /**
   * Starts the watches of an earlier program again. Nobody knows what has changed meanwhile, so after the events of the
   * earlier program comes a `rescan`, or the removal of a directory that is gone. When a directory cannot be watched for
   * another reason, `onFailure` is called, and the client gets that error after those events.
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
        // The client removed the watch meanwhile.
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

  optionsOf(id: string): PolledOptions {
    return this.#find(id).options;
  }

  /**
   * Yields the events since the last call, in order, in parts of at most `most` events. Each part is taken when it is asked
   * for. Throws `not_found` when there is no such watch, or when its directory is gone and all its events have been taken,
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
        // This call has events to return, so the next call throws the error.
        return;
      }
    }
  }

  /** Does the same, and includes all changes that were made in this guest before the call. */
  async takeUpToNow(id: string, most?: number): Promise<Iterable<readonly WatchEvent[]>> {
    this.#find(id);
    await this.#watcher.settled();
    return this.take(id, most);
  }

  remove(id: string): void {
    const { watch } = this.#find(id);
    this.#watches.delete(id);
    watch?.[Symbol.dispose]();
  }

  [Symbol.dispose](): void {
    for (const { watch } of this.#watches.values()) watch?.[Symbol.dispose]();
    this.#watches.clear();
  }

  /** Adds an event after those of the earlier program, unless one of them already tells that the directory is gone. */
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

/** Takes the next events. Returns null at the end of the watch, or throws the error that ended it. */
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
