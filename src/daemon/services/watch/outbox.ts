import { type BytePath, displayPath } from '../../os/byte-path.ts';
import type { WatchEvent, WatchEventType, WatchSink } from './event.ts';

/** Maximum number of events taken at once. */
const BATCH = 1024;
/** Maximum number of events queued for one reader. */
const MAX_WAITING = 65_536;
/** Maximum number of events queued for all readers together; an event takes about 150 bytes. */
const MAX_WAITING_TOGETHER = 262_144;

interface Waiting {
  readonly type: WatchEventType;
  readonly name: BytePath;
  readonly movedFrom: BytePath | null;
}

const RESCAN: Waiting = { type: 'rescan', name: '.', movedFrom: null };

/** Bounds the events of all outboxes together: beyond the limit the longest outbox is reduced to one `rescan`. */
export class Backlog {
  readonly #limit: number;
  readonly #outboxes = new Set<Outbox>();
  #waiting = 0;

  constructor(limit = MAX_WAITING_TOGETHER) {
    this.#limit = limit;
  }

  /** Number of events in all outboxes. */
  get size(): number {
    return this.#waiting;
  }

  add(outbox: Outbox): void {
    this.#outboxes.add(outbox);
  }

  delete(outbox: Outbox): void {
    this.#outboxes.delete(outbox);
  }

  count(events: number): void {
    this.#waiting += events;
    if (this.#waiting <= this.#limit) return;
    let fullest: Outbox | null = null;
    for (const outbox of this.#outboxes) if (outbox.size > (fullest?.size ?? 1)) fullest = outbox;
    fullest?.rescan();
  }
}

/** The queue of events of one watch. When it overflows it is replaced by one `rescan`. */
export class Outbox implements WatchSink, Disposable {
  readonly #root: string;
  readonly #backlog: Backlog;
  readonly #limit: number;
  #waiting: Waiting[] = [];
  #taken = 0;
  #error: Error | null = null;
  #ended = false;
  #wake: (() => void) | null = null;

  /** `root`: the path of the watch as requested. */
  constructor(root: string, backlog: Backlog, limit = MAX_WAITING) {
    this.#root = root;
    this.#backlog = backlog;
    this.#limit = limit;
    backlog.add(this);
  }

  /** Number of queued events. */
  get size(): number {
    return this.#waiting.length - this.#taken;
  }

  push(type: WatchEventType, name: BytePath, movedFrom: BytePath | null = null): void {
    if (this.#ended) return;
    if (this.size >= this.#limit) this.rescan();
    this.#waiting.push({ type, name, movedFrom });
    this.#backlog.count(1);
    this.#wakeReader();
  }

  /** Replaces all queued events by one `rescan`. */
  rescan(): void {
    if (this.#ended) return;
    const dropped = this.size;
    this.#waiting = [RESCAN];
    this.#taken = 0;
    this.#backlog.count(1 - dropped);
    this.#wakeReader();
  }

  /** Ends the queue: queued events can still be taken, then `error` is thrown. */
  end(error: Error | null = null): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#error = error;
    this.#backlog.delete(this);
    this.#wakeReader();
  }

  /** Takes the queued events, at most 1024. */
  take(): WatchEvent[] {
    if (this.size === 0 && this.#error) throw this.#error;
    const end = Math.min(this.#taken + BATCH, this.#waiting.length);
    const events = this.#waiting.slice(this.#taken, end).map((waiting) => this.#describe(waiting));
    this.#backlog.count(-events.length);
    this.#taken = end;
    if (end === this.#waiting.length) {
      this.#waiting = [];
      this.#taken = 0;
    }
    return events;
  }

  /** Waits for events and takes them; null at the end. */
  async next(): Promise<WatchEvent[] | null> {
    while (this.size === 0) {
      if (this.#ended && !this.#error) return null;
      if (this.#error) break;
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#wake = resolve;
      await promise;
    }
    return this.take();
  }

  /** Drops all queued events and ends the queue. */
  [Symbol.dispose](): void {
    this.#backlog.count(-this.size);
    this.#waiting = [];
    this.#taken = 0;
    this.#error = null;
    this.end();
  }

  #describe({ type, name, movedFrom }: Waiting): WatchEvent {
    const shown = displayPath(name);
    const path = shown === '.' ? this.#root : `${this.#root === '/' ? '' : this.#root}/${shown}`;
    return { type, name: shown, path, movedFrom: movedFrom && displayPath(movedFrom) };
  }

  #wakeReader(): void {
    this.#wake?.();
    this.#wake = null;
  }
}
