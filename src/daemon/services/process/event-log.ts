import type { ProcessEvent } from './events.ts';

/** One event of a process. */
export interface Entry {
  readonly event: ProcessEvent;
  /** What it and all before it cost, in bytes. */
  readonly position: number;
}

/** A place in the log: that of a reader, or where a batch ends. */
export interface Place {
  /** The number of the event that comes next. */
  readonly next: number;
  /** What all events before that one cost, in bytes. */
  readonly position: number;
}

interface Batch {
  readonly from: number;
  readonly events: readonly ProcessEvent[];
  readonly end: Place;
}

/** Forgotten entries that are cut off together, so that forgetting stays cheap. */
const CUT_LENGTH = 64;

/**
 * The events of a process that somebody still needs, each by its number from 0 on. An array and no linked list: the
 * first node of a list that has grown old in the heap would keep alive all that follow it until a full collection.
 */
export class EventLog {
  readonly #entries: (Entry | null)[] = [];
  /** The number of the first of `#entries`, and of the first that has not been forgotten. */
  #base = 0;
  #first = 0;
  #position = 0;
  /** What was taken last, by how much was wanted. */
  readonly #recent = new Map<number, Batch>();

  /** The number that the next event gets. */
  get end(): number {
    return this.#base + this.#entries.length;
  }

  /** What all events together cost, in bytes. */
  get position(): number {
    return this.#position;
  }

  append(event: ProcessEvent, cost: number): void {
    this.#position += cost;
    this.#recent.clear();
    this.#entries.push({ event, position: this.#position });
  }

  /** The entry with that number, or null when it is forgotten or has not come yet. */
  at(number: number): Entry | null {
    return this.#entries[number - this.#base] ?? null;
  }

  /**
   * The events from `place` on that begin within so many bytes, and where they end. Readers who keep step get the very
   * same array, so that what is made of it can be shared.
   */
  take({ next, position }: Place, bytes: number): { events: readonly ProcessEvent[]; end: Place } {
    const recent = this.#recent.get(bytes);
    if (recent?.from === next) return recent;
    const events: ProcessEvent[] = [];
    const end = { next, position };
    for (let entry = this.at(next); entry && end.position < position + bytes; entry = this.at(end.next)) {
      events.push(entry.event);
      end.next += 1;
      end.position = entry.position;
    }
    const batch = { from: next, events, end };
    this.#recent.set(bytes, batch);
    return batch;
  }

  /** Lets go of all entries before that number. */
  forget(before: number): void {
    for (; this.#first < before; this.#first++) this.#entries[this.#first - this.#base] = null;
    const forgotten = this.#first - this.#base;
    if (forgotten < CUT_LENGTH || forgotten * 2 < this.#entries.length) return;
    this.#entries.splice(0, forgotten);
    this.#base = this.#first;
  }
}
