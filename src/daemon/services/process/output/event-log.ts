import type { ProcessEvent } from './events.ts';

/** One event of a process. */
export interface LogEntry {
  readonly event: ProcessEvent;
  /** Cost of this event and all before it, in bytes. */
  readonly position: number;
}

/** A position in the log. */
export interface LogCursor {
  /** Number of the next event. */
  readonly next: number;
  /** Cost of all events before it, in bytes. */
  readonly position: number;
}

interface Batch {
  /** The limit that it was taken with, in bytes. */
  readonly bytes: number;
  readonly from: number;
  readonly events: readonly ProcessEvent[];
  readonly end: LogCursor;
}

/** Least number of forgotten entries that are spliced off at once. */
const CUT_LENGTH = 64;

/**
 * The events of a process that a reader still needs, numbered from 0. An array instead of a linked list: a first node
 * that has been promoted to V8's old generation would keep all following nodes alive until a full garbage collection.
 */
export class EventLog {
  readonly #entries: (LogEntry | null)[] = [];
  /** Number of the first element of `#entries`; `#first`: number of the first entry that has not been forgotten. */
  #base = 0;
  #first = 0;
  #position = 0;
  /** The last batch taken with each limit: readers of a codec have the same one. Not a Map, whose `clear` makes a table. */
  readonly #recent: Batch[] = [];

  /** Number of the next event to be appended. */
  get end(): number {
    return this.#base + this.#entries.length;
  }

  /** After the last event. */
  get endPlace(): LogCursor {
    return { next: this.end, position: this.#position };
  }

  /** Cost of all events so far, in bytes. */
  get position(): number {
    return this.#position;
  }

  append(event: ProcessEvent, cost: number): void {
    this.#position += cost;
    this.#recent.length = 0;
    this.#entries.push({ event, position: this.#position });
  }

  /** The entry with that number; null when it is forgotten or not yet appended. */
  at(number: number): LogEntry | null {
    return this.#entries[number - this.#base] ?? null;
  }

  /**
   * The events from `place` on that begin within `bytes`, and the position after them. Readers at the same place get
   * the same array, so that its encoding can be shared.
   */
  take({ next, position }: LogCursor, bytes: number): { events: readonly ProcessEvent[]; end: LogCursor } {
    const index = this.#recent.findIndex((batch) => batch.bytes === bytes);
    const recent = this.#recent[index];
    if (recent?.from === next) return recent;
    const events: ProcessEvent[] = [];
    const end = { next, position };
    for (let entry = this.at(next); entry && end.position < position + bytes; entry = this.at(end.next)) {
      events.push(entry.event);
      end.next += 1;
      end.position = entry.position;
    }
    const batch = { bytes, from: next, events, end };
    this.#recent[index < 0 ? this.#recent.length : index] = batch;
    return batch;
  }

  /** Drops all entries, with the memory that they took. */
  clear(): void {
    this.#base = this.#first = this.end;
    this.#entries.length = this.#recent.length = 0;
  }

  /** Drops all entries before that number. */
  forget(before: number): void {
    for (; this.#first < before; this.#first++) this.#entries[this.#first - this.#base] = null;
    const forgotten = this.#first - this.#base;
    if (forgotten < CUT_LENGTH || forgotten * 2 < this.#entries.length) return;
    this.#entries.splice(0, forgotten);
    this.#base = this.#first;
  }
}
