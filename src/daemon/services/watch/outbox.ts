import { type BytePath, displayPath, joinBytes } from '../../linux/paths/byte-path.ts';
import {
  rootChange,
  type TreeChange,
  type WatchEvent,
  type WatchEventType,
  type WatchSink,
} from './local/event.ts';

/** The most events that are taken at once, and the bytes of names and paths after which no more are taken. */
const BATCH = 1024;
const BATCH_BYTES = 64 * 1024;
/** The most bytes of events that wait for one reader. */
const MAX_WAITING = 8 * 1024 * 1024;
/** The most bytes of events that wait for all readers together. */
const MAX_WAITING_TOGETHER = 32 * 1024 * 1024;
/**
 * The bytes that V8 needs for a queued event, and for a directory's entry in the map, besides the characters of the names.
 */
const EVENT_BYTES = 112;
const DIRECTORY_BYTES = 160;
/** `rescan` leaves up to this many events, so an outbox of that size cannot be reduced any further. */
const LEAST = 2;

/** A directory whose path is shared by the queued events of its entries. */
interface Shared {
  readonly path: BytePath;
  events: number;
}

interface Waiting {
  readonly type: WatchEventType;
  readonly directory: Shared;
  readonly name: BytePath;
  readonly movedFrom: BytePath | null;
}

/** Bounds the bytes of all outboxes together: beyond the limit it reduces the largest outbox to one `rescan`. */
export class Backlog {
  readonly #limit: number;
  readonly #outboxes = new Set<Outbox>();
  #bytes = 0;
  /** The number of `rescan` events that readers have taken. */
  rescans = 0;

  constructor(limit = MAX_WAITING_TOGETHER) {
    this.#limit = limit;
  }

  get bytes(): number {
    return this.#bytes;
  }

  add(outbox: Outbox): void {
    this.#outboxes.add(outbox);
  }

  delete(outbox: Outbox): void {
    this.#outboxes.delete(outbox);
  }

  count(bytes: number): void {
    this.#bytes += bytes;
    if (this.#bytes <= this.#limit) return;
    let largest: Outbox | null = null;
    for (const outbox of this.#outboxes) if (outbox.bytes > (largest?.bytes ?? 0)) largest = outbox;
    if (largest && largest.size > LEAST) largest.rescan();
  }
}

/** Queues the events of one watch. When it overflows, one `rescan` replaces all of them. */
export class Outbox implements WatchSink, Disposable {
  readonly #root: string;
  readonly #backlog: Backlog;
  readonly #limit: number;
  readonly #waiting: Waiting[] = [];
  readonly #directories = new Map<BytePath, Shared>();
  #bytes = 0;
  #error: Error | null = null;
  #ended = false;
  #wake: (() => void) | null = null;

  /** `root` is the path of the watch as requested, and `limit` the most bytes of queued events. */
  constructor(root: string, backlog: Backlog, limit = MAX_WAITING) {
    this.#root = root;
    this.#backlog = backlog;
    this.#limit = limit;
    backlog.add(this);
  }

  get size(): number {
    return this.#waiting.length;
  }

  get bytes(): number {
    return this.#bytes;
  }

  push(change: TreeChange): void {
    if (this.#ended) return;
    if (this.#bytes >= this.#limit) this.rescan();
    this.#add(change);
  }

  /** Replaces all queued events by one `rescan`, except for the last one if it says how the watch ended. */
  rescan(): void {
    const last = this.#ended ? this.#waiting.at(-1) : undefined;
    this.#clear();
    this.#add(rootChange('rescan'));
    if (last?.name === '.') this.#add(rootChange(last.type));
  }

  /** Ends the queue. Queued events can still be taken; after them `take` throws `error`, if there is one. */
  end(error: Error | null = null): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#error = error;
    this.#wakeReader();
  }

  /**
   * Takes at most `most` queued events, and no more after 64 KiB of names and paths. When there are none and the queue has
   * ended, it returns null, or throws the error that ended the queue.
   */
  take(most = BATCH): WatchEvent[] | null {
    if (this.size === 0 && this.#ended) {
      if (this.#error) throw this.#error;
      return null;
    }
    const events: WatchEvent[] = [];
    let [freed, taken] = [0, 0];
    for (const waiting of this.#waiting) {
      if (events.length >= most || taken >= BATCH_BYTES) break;
      freed += this.#release(waiting);
      const event = this.#describe(waiting);
      taken += event.name.length + event.path.length;
      events.push(event);
      if (event.type === 'rescan') this.#backlog.rescans++;
    }
    this.#waiting.splice(0, events.length);
    this.#count(-freed);
    return events;
  }

  /** Yields the queued events, which stay in the queue. */
  *queued(): Generator<WatchEvent, void> {
    for (const waiting of this.#waiting) yield this.#describe(waiting);
  }

  /** Waits for events, and takes them as `take` does. */
  async next(most = BATCH): Promise<WatchEvent[] | null> {
    while (this.size === 0 && !this.#ended) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#wake = resolve;
      await promise;
    }
    return this.take(most);
  }

  /** Drops all queued events and ends the queue. */
  [Symbol.dispose](): void {
    this.#clear();
    this.#backlog.delete(this);
    this.#error = null;
    this.end();
  }

  #add({ type, directory: path, name, movedFrom }: TreeChange): void {
    const directory = this.#directories.get(path) ?? { path, events: 0 };
    if (directory.events++ === 0) this.#directories.set(path, directory);
    const waiting = { type, directory, name, movedFrom };
    this.#waiting.push(waiting);
    this.#count(bytesOf(waiting) + (directory.events === 1 ? bytesOfDirectory(directory) : 0));
    this.#wakeReader();
  }

  /** Returns the bytes that are free once the event has left the queue. */
  #release(waiting: Waiting): number {
    const { directory } = waiting;
    if (--directory.events > 0) return bytesOf(waiting);
    this.#directories.delete(directory.path);
    return bytesOf(waiting) + bytesOfDirectory(directory);
  }

  #clear(): void {
    this.#waiting.length = 0;
    this.#directories.clear();
    this.#count(-this.#bytes);
  }

  #count(bytes: number): void {
    this.#bytes += bytes;
    this.#backlog.count(bytes);
  }

  #describe({ type, directory, name, movedFrom }: Waiting): WatchEvent {
    const shown = displayPath(joinBytes(directory.path, name));
    const path = shown === '.' ? this.#root : `${this.#root === '/' ? '' : this.#root}/${shown}`;
    return { type, name: shown, path, movedFrom: movedFrom && displayPath(movedFrom) };
  }

  #wakeReader(): void {
    this.#wake?.();
    this.#wake = null;
  }
}

function bytesOf({ name, movedFrom }: Waiting): number {
  return EVENT_BYTES + name.length + (movedFrom?.length ?? 0);
}

function bytesOfDirectory({ path }: Shared): number {
  return DIRECTORY_BYTES + path.length;
}
