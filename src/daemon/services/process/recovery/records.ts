import { within } from '../../../../base/abort.ts';
import type { NamedDescriptors } from '../../../linux/memory/record.ts';
import type { KeptRecord, RecordStore } from '../../../linux/memory/record-store.ts';
import type { SharedMemory } from '../../../linux/memory/shared-memory.ts';
import type { PipePoller } from '../../../linux/processes/pipe-ends.ts';
import type { InFlight } from '../../../linux/processes/read-buffer.ts';
import type { ManagedProcess } from '../lifecycle/process.ts';
import {
  decodeState,
  type EncodedState,
  encodeState,
  type ProcessState,
} from '../lifecycle/process-state.ts';
import { NO_ENDS } from '../output/channels.ts';

/** The longest time that a start waits for the service manager, in milliseconds. */
const KEPT_MS = 1000;

/** A record about a start under way, a process, or the kept output. Paths and descriptors are those of the daemon. */
export type ProcessRecord =
  | { readonly about: 'starting'; readonly leaf: string | null }
  | { readonly about: 'output' }
  | { readonly about: 'reads'; readonly output: string }
  | ({ readonly about: 'process' } & RecordedProcess);

/** The state of a process; its descriptors are those of the record. */
export interface RecordedProcess extends Omit<EncodedState<ProcessState>, 'ends' | 'pidfd'> {
  readonly startId: string | null;
  /** Key of the record with its kept output. */
  readonly output: string;
}

/** What was found after a crash. */
export interface Recovered {
  readonly processes: readonly {
    readonly key: string;
    readonly recorded: RecordedProcess;
    readonly descriptors: Readonly<Record<string, number>>;
  }[];
  /** Descriptors of kept output, by the key of its record. */
  readonly outputs: ReadonlyMap<string, number>;
  /** What was read from a pipe when the daemon was killed, and the key of the record with the kept output; or null. */
  readonly inFlight: { readonly output: string; readonly read: InFlight } | null;
  /** Cgroups of starts that were under way. */
  readonly starting: ReadonlySet<string>;
}

/** Keeps the state of all processes for a program that comes after a crash. */
export class ProcessRecords {
  readonly #store: RecordStore;
  readonly #output: KeptRecord;
  readonly #records = new Map<ManagedProcess, { key: string; update: (state: ProcessState) => void }>();

  constructor(store: RecordStore) {
    this.#store = store;
    this.#output = store.record();
  }

  keepOutput({ descriptor }: SharedMemory): void {
    if (descriptor !== null) set(this.#output, { about: 'output' }, { memory: descriptor });
  }

  /** Keeps what is read from pipes until it is in the kept output. */
  keepReads(poller: PipePoller): void {
    const { inFlight } = poller;
    if (inFlight) set(this.#store.record(), { about: 'reads', output: this.#output.key }, { ...inFlight });
  }

  /** A process is about to be started, in that cgroup. */
  starting(leaf: string | null): KeptRecord {
    const record = this.#store.record();
    if (this.#store.isActive && leaf !== null) set(record, { about: 'starting', leaf });
    return record;
  }

  /** The record of a process of an earlier program. */
  existing(key: string | undefined): KeptRecord {
    return this.#store.record(key);
  }

  /** Keeps the state of a process in `record`, and all its changes. */
  follow(process: ManagedProcess, startId: string | null, record: KeptRecord): void {
    if (!this.#store.isActive) return;
    let isLast = false;
    const update = (state: ProcessState) => {
      if (isLast) return;
      const { ends, pidfd } = state;
      // JSON leaves out what is undefined: V8 copies a whole object faster than the rest of one.
      const without = { ends: undefined, pidfd: undefined };
      const kept = {
        ...encodeState(state),
        ...without,
        about: 'process',
        startId,
        output: this.#output.key,
      } as const;
      isLast = state.end !== null && Object.values(ends).every((end) => end === null);
      set(record, kept, { ...ends, pidfd }, isLast);
    };
    this.#records.set(process, { key: record.key, update });
    process.onChange = () => {
      if (!isLast) update(process.state);
    };
    // Otherwise at its end, before its client is told anything.
    if (!process.isOver) process.onChange();
    process.onForgotten = () => {
      process.onChange = () => {};
      this.#records.delete(process);
      record.drop();
    };
  }

  /** Resolves when the records would survive a kill now, after a second at most; null: they would. */
  get kept(): Promise<void> | null {
    const { taken } = this.#store;
    return taken && within(KEPT_MS, taken, () => {});
  }

  /** Keeps a state with what `follow` leaves out. */
  update(process: ManagedProcess, state: ProcessState): void {
    this.#records.get(process)?.update(state);
  }

  /** The key of the record of a process, or undefined without one. */
  keyOf(process: ManagedProcess): string | undefined {
    return this.#records.get(process)?.key;
  }
}

function set(record: KeptRecord, state: ProcessRecord, descriptors?: NamedDescriptors, isLast = false): void {
  record.set(state, descriptors, isLast);
}

/** The state of a recorded process. One without its pidfd may be any other process by now. */
export function stateOf(
  process: RecordedProcess,
  descriptors: Readonly<Record<string, number>>,
): ProcessState {
  const { pidfd = null, ...ends } = descriptors;
  return { ...decodeState(process), ends: { ...NO_ENDS, ...ends }, pidfd, isChild: false };
}
