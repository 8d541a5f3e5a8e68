import { closeSync, readSync } from 'node:fs';
import { Area } from '../../linux/memory/area.ts';
import { createMemory, type SharedMemory } from '../../linux/memory/shared-memory.ts';
import type { RecordContent } from '../../services/handover/recovery.ts';
import type { KeptRecord, RecordStore } from '../../services/records/record-store.ts';
import { NUMBERS, type RingState } from './ring.ts';
import type { LastingState } from './state.ts';

export const EXTENSION = 'lasting-output';

const MOST_RINGS = 2;
const PLACE_BYTES = MOST_RINGS * NUMBERS * Float64Array.BYTES_PER_ELEMENT;

/** What a program finds after a crash. `at` is the position of the numbers in the memory that the record has. */
type RecordedState = LastingState & { readonly at: number };

/**
 * Places of kept outputs: each has a record for after a crash (docs/decisions/019-crashes.md), and the numbers of its rings in
 * memory that outlives the program. So a write needs no new record.
 */
export class OutputPlaces {
  readonly #records: RecordStore;
  readonly #area: Area;
  #memory: SharedMemory | null = null;

  constructor(records: RecordStore, most: number) {
    this.#records = records;
    this.#area = new Area(0, PLACE_BYTES, most);
  }

  /** Takes a place, or returns null if all are taken. `key` continues the record of an earlier program. */
  take(key?: string): OutputPlace | null {
    const at = this.#area.take(() => {});
    if (at === null) return null;
    this.#memory ??= createMemory(this.#area.end);
    return new OutputPlace(this.#records.record(key), this.#memory, at, () => this.#area.release(at));
  }
}

export class OutputPlace implements Disposable {
  readonly #record: KeptRecord;
  readonly #memory: SharedMemory;
  readonly #at: number;
  readonly #release: () => void;

  constructor(record: KeptRecord, memory: SharedMemory, at: number, release: () => void) {
    this.#record = record;
    this.#memory = memory;
    this.#at = at;
    this.#release = release;
  }

  get key(): string {
    return this.#record.key;
  }

  /** Returns the numbers of a ring, which are not the place's any more once it is disposed of. */
  numbersOf(ring: number): Float64Array {
    const { buffer, byteOffset } = this.#memory.bytes;
    const start = byteOffset + this.#at + ring * NUMBERS * Float64Array.BYTES_PER_ELEMENT;
    return new Float64Array(buffer, start, NUMBERS);
  }

  /** Records a state, and the descriptor of its file. */
  record(state: LastingState, file: number): void {
    const memory = this.#memory.descriptor;
    if (memory === null || !this.#record.isKept) return;
    const recorded: RecordedState = { ...state, at: this.#at };
    const content = { about: 'extension', extension: EXTENSION, state: recorded } satisfies RecordContent;
    this.#record.set(content, { file, memory });
  }

  [Symbol.dispose](): void {
    this.#record.drop();
    this.#release();
  }
}

/** Returns a state as it was when its program was killed. Closes the memory of that program. */
export function afterCrash(state: LastingState, memory: number): LastingState {
  const bytes = Buffer.alloc(PLACE_BYTES);
  readSync(memory, bytes, 0, PLACE_BYTES, (state as RecordedState).at);
  closeSync(memory);
  const rings = Object.entries(state.rings).map(([stream, { base }], index): [string, RingState] => {
    const [capacity = 0, from = 0, to = 0] = Array.from({ length: NUMBERS }, (_, number) =>
      bytes.readDoubleLE((index * NUMBERS + number) * Float64Array.BYTES_PER_ELEMENT),
    );
    // It may have been killed when the ring was about to start anew.
    return [stream, { base, capacity, from, to: Math.max(from, to) }];
  });
  return { ...state, rings: Object.fromEntries(rings) };
}
