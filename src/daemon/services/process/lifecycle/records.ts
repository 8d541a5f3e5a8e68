import { within } from '../../../../base/abort.ts';
import type { SharedMemory } from '../../../linux/memory/shared-memory.ts';
import type { PipePoller } from '../../../linux/processes/pipe-ends.ts';
import type { KeptRecord, NamedDescriptors, RecordStore } from '../../records/record-store.ts';
import { type EncodedProcess, encodeProcess, type ProcessState } from './process-state.ts';

/** A start waits at most this long for the service manager, in milliseconds. */
const KEPT_MS = 1000;

/** Describes a start under way. If its daemon is killed, nobody knows whether its program has run. */
export interface BegunStart {
  /** The key of its record, if it has one. */
  readonly record?: string | undefined;
  /** The path of its cgroup, or null. */
  readonly leaf: string | null;
  /** Its idempotency key, or null. */
  readonly startId: string | null;
}

/**
 * Describes a start under way, a process, the kept output, or what is read from pipes. The descriptors of a process are
 * those of its record. `output` is the key of the record with its kept output.
 */
export type ProcessRecordContent =
  | { readonly about: 'starting'; readonly leaf: string | null; readonly startId: string | null }
  | { readonly about: 'output' }
  | { readonly about: 'reads'; readonly output: string }
  | ({ readonly about: 'process'; readonly output: string } & Omit<EncodedProcess, 'ends' | 'pidfd'>);

/** Records all processes, for a program that comes after a crash. */
export class ProcessRecords {
  readonly #store: RecordStore;
  /** The key of the record with the kept output. */
  readonly #output: string;

  /** `memory` holds the kept output. What `poller` reads from pipes is recorded until it is in the kept output. */
  constructor(store: RecordStore, memory: SharedMemory, { inFlight }: PipePoller) {
    this.#store = store;
    const output = store.record();
    this.#output = output.key;
    if (memory.descriptor !== null) set(output, { about: 'output' }, { memory: memory.descriptor });
    if (inFlight) set(store.record(), { about: 'reads', output: output.key }, inFlight);
  }

  /** Returns the record of a process that is about to be started. With the record of an earlier program it continues that. */
  starting({ record: key, leaf, startId }: BegunStart): ProcessRecord {
    const record = this.#store.record(key);
    const isNeeded = leaf !== null || startId !== null;
    if (this.#store.isActive && isNeeded) set(record, { about: 'starting', leaf, startId });
    return new ProcessRecord(record, this.#output);
  }

  /** Returns the record of a process of an earlier program. `key` is undefined if it has none. */
  existing(key: string | undefined): ProcessRecord {
    return new ProcessRecord(this.#store.record(key), this.#output);
  }

  /** Resolves when the records would survive a kill now, after a second at most. It is null if they would already. */
  get kept(): Promise<void> | null {
    const { taken } = this.#store;
    return taken && within(KEPT_MS, taken, () => {});
  }
}

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

  /** Keeps the state of the process. The last state is kept once. */
  keep(process: { readonly state: ProcessState }): void {
    if (this.#isLast || !this.#record.isKept) return;
    const { state } = process;
    const { ends, pidfd } = state;
    // JSON leaves out what is undefined. V8 copies a whole object faster than all but some of its properties.
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
