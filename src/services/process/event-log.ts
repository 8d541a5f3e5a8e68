import type { ProcessEvent } from './events.ts';

/** One event of a process. */
export interface Entry {
  readonly event: ProcessEvent;
  /** What it and all before it cost, in bytes. */
  readonly position: number;
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
    this.#entries.push({ event, position: this.#position });
  }

  /** The entry with that number, or null when it is forgotten or has not come yet. */
  at(number: number): Entry | null {
    return this.#entries[number - this.#base] ?? null;
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
