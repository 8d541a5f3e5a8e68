import type { ProcessEvent } from './events.ts';

export interface LogEntry {
  readonly event: ProcessEvent;
  /** The cost of this event and all before it, in bytes. */
  readonly position: number;
}

export interface LogCursor {
  readonly next: number;
  /** The cost of all events before it, in bytes. */
  readonly position: number;
}

interface Batch {
  /** The batch was taken with this limit, in bytes. */
  readonly bytes: number;
  readonly from: number;
  readonly events: readonly ProcessEvent[];
  readonly end: LogCursor;
}

/** At least this many forgotten entries are cut off at once. */
const CUT_LENGTH = 64;

/**
 * The events of a process that a slow reader still needs, numbered from 0. When the slowest one lags too far behind, `Output`
 * stops reading from the process, and the kernel stops the process at its next write. This is an array because of V8's garbage
 * collection: an old first node of a linked list would keep all following nodes alive until a full collection.
 */
export class UnreadOutput {
  readonly #entries: (LogEntry | null)[] = [];
  /** `#base` is the number of the first element of `#entries`. `#first` is that of the first one not forgotten. */
  #base = 0;
  #first = 0;
  #position = 0;
  /**
   * The last batch taken with each limit, until all readers have taken it, because readers of one codec take the
   * same batch. It is an array, because `clear` of a Map allocates a table.
   */
  readonly #recent: Batch[] = [];

  /** Returns the number of the next event to be appended. */
  get end(): number {
    return this.#base + this.#entries.length;
  }

  /** Returns the position after the last event. */
  get endPlace(): LogCursor {
    return { next: this.end, position: this.#position };
  }

  /** Returns the cost of all events so far, in bytes. */
  get position(): number {
    return this.#position;
  }

  append(event: ProcessEvent, cost: number): void {
    this.#position += cost;
    this.#recent.length = 0;
    this.#entries.push({ event, position: this.#position });
  }

  /** Returns the entry with this number, or null when it is forgotten or not yet appended. */
  at(number: number): LogEntry | null {
    return this.#entries[number - this.#base] ?? null;
  }

  /**
   * Returns the events from `place` on that begin within `bytes`, and the position after them. Readers at the same
   * place get the same array, so that its encoding can be shared.
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

  /** Drops all entries before this number, and the batches that begin before it. */
  forget(before: number): void {
    for (let index = this.#recent.length - 1; index >= 0; index--)
      if ((this.#recent[index]?.from ?? 0) < before) this.#recent.splice(index, 1);
    for (; this.#first < before; this.#first++) this.#entries[this.#first - this.#base] = null;
    const forgotten = this.#first - this.#base;
    if (forgotten < CUT_LENGTH || forgotten * 2 < this.#entries.length) return;
    this.#entries.splice(0, forgotten);
    this.#base = this.#first;
  }
}
