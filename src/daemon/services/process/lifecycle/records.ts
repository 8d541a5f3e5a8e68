import { within } from '../../../../base/abort.ts';
import type { NamedDescriptors } from '../../../linux/memory/record.ts';
import type { KeptRecord, RecordStore } from '../../../linux/memory/record-store.ts';
import type { SharedMemory } from '../../../linux/memory/shared-memory.ts';
import type { PipePoller } from '../../../linux/processes/pipe-ends.ts';
import { encodeProcess, type ProcessState, type ReadProcess } from './process-state.ts';

/** The longest time that a start waits for the service manager, in milliseconds. */
const KEPT_MS = 1000;

/**
 * A record about a start under way, a process, the kept output, or what is read from pipes. Of a process its descriptors are
 * those of the record; `output`: key of the record with its kept output.
 */
export type ProcessRecordContent =
  | { readonly about: 'starting'; readonly leaf: string | null }
  | { readonly about: 'output' }
  | { readonly about: 'reads'; readonly output: string }
  | ({ readonly about: 'process'; readonly output: string } & Omit<ReadProcess, 'ends' | 'pidfd'>);

/** Records of all processes, for a program that comes after a crash. */
export class ProcessRecords {
  readonly #store: RecordStore;
  /** Key of the record with the kept output. */
  readonly #output: string;

  /** `memory`: the kept output; `poller`: what it reads from pipes is kept until it is in the kept output. */
  constructor(store: RecordStore, memory: SharedMemory, { inFlight }: PipePoller) {
    this.#store = store;
    const output = store.record();
    this.#output = output.key;
    if (memory.descriptor !== null) set(output, { about: 'output' }, { memory: memory.descriptor });
    if (inFlight) set(store.record(), { about: 'reads', output: output.key }, { ...inFlight });
  }

  /** The record of a process that is about to be started, in that cgroup. */
  starting(leaf: string | null): ProcessRecord {
    const record = this.#store.record();
    if (this.#store.isActive && leaf !== null) set(record, { about: 'starting', leaf });
    return new ProcessRecord(record, this.#output);
  }

  /** The record of a process of an earlier program; undefined: it has none. */
  existing(key: string | undefined): ProcessRecord {
    return new ProcessRecord(this.#store.record(key), this.#output);
  }

  /** Resolves when the records would survive a kill now, after a second at most; null: they would. */
  get kept(): Promise<void> | null {
    const { taken } = this.#store;
    return taken && within(KEPT_MS, taken, () => {});
  }
}

/** The record of one process. */
export class ProcessRecord {
  readonly #record: KeptRecord;
  readonly #output: string;
  #isLast = false;

  constructor(record: KeptRecord, output: string) {
    this.#record = record;
    this.#output = output;
  }

  get key(): string {
    return this.#record.key;
  }

  /** Keeps the state of the process, until it has its last one. */
  keep(process: { readonly state: ProcessState }): void {
    if (this.#isLast || !this.#record.isKept) return;
    const { state } = process;
    const { ends, pidfd } = state;
    // JSON leaves out what is undefined: V8 copies a whole object faster than the rest of one.
    const without = { ends: undefined, pidfd: undefined };
    const content = { ...encodeProcess(state), ...without, about: 'process', output: this.#output } as const;
    this.#isLast = state.end !== null && Object.values(ends).every((end) => end === null);
    set(this.#record, content, { ...ends, pidfd }, this.#isLast);
  }

  drop(): void {
    this.#isLast = true;
    this.#record.drop();
  }
}

function set(
  record: KeptRecord,
  content: ProcessRecordContent,
  descriptors?: NamedDescriptors,
  isLast = false,
): void {
  record.set(content, descriptors, isLast);
}
