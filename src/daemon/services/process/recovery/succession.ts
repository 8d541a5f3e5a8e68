import { closeSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { debug } from '../../../../base/program/debug.ts';
import type { Cgroup } from '../../../linux/cgroups/cgroup2.ts';
import type { KeptRecord } from '../../../linux/memory/record-store.ts';
import type { InFlight } from '../../../linux/processes/read-buffer.ts';
import type { Leaves } from '../cgroups/leaf.ts';
import type { ManagedProcess } from '../lifecycle/process.ts';
import { type KeptOutput, recoverOutput, restoreHistory } from '../output/output-recovery.ts';
import type { OutputPaths } from './output-paths.ts';
import { type ProcessRecords, type Recovered, stateOf } from './records.ts';
import type { StartIds } from './start-ids.ts';
import { drainPipes, type ProcessesSnapshot, type ProcessesState, takeOverProcess } from './take-over.ts';

/** Interval of looks whether readers have taken all output, in milliseconds. */
const SETTLE_MS = 5;

/** A process of an earlier program. */
export interface Continued {
  readonly process: ManagedProcess;
  readonly state: ProcessesState['processes'][number];
}

/** How processes go from one program to the next: by its state in an upgrade, by records after a crash. */
export class Succession {
  readonly #leaves: Leaves;
  readonly #outputs: OutputPaths;
  readonly #startIds: StartIds;
  readonly #records: ProcessRecords;

  constructor(leaves: Leaves, outputs: OutputPaths, startIds: StartIds, records: ProcessRecords) {
    this.#leaves = leaves;
    this.#outputs = outputs;
    this.#startIds = startIds;
    this.#records = records;
  }

  /** Reads no more output of these processes, and waits until readers have taken what was read, at most `limitMs`. */
  async settle(all: readonly ManagedProcess[], limitMs: number): Promise<void> {
    for (const process of all) process.holdOutput();
    for (let waited = 0; waited < limitMs && all.some((process) => process.hasUnread); waited += SETTLE_MS)
      await delay(SETTLE_MS);
  }

  /** The state of these processes for a later program of this process; each one is made when it is taken. */
  stateOf(all: readonly ManagedProcess[]): ProcessesSnapshot {
    const used = new Set<number | null>(all.flatMap(({ state: { ends } }) => Object.values(ends)));
    const drains = this.#outputs.poller.descriptors.filter((descriptor) => !used.has(descriptor));
    return {
      processes: this.#statesOf(all),
      drains,
      memory: this.#outputs.memory,
      leaves: this.#leaves.state,
    };
  }

  /** Reads nothing any more, and keeps the whole state of these processes for a program that comes after this one. */
  handOver(all: readonly ManagedProcess[]): void {
    for (const process of all) {
      process.holdOutput();
      this.#records.update(process, process.stateWithInput);
    }
    debug('process', 'handed over', () => ({ processes: all.length }));
  }

  /** The processes of an earlier program, in the order of their ends; closes its kept output. */
  takeOver({ processes, drains, memory, leaves }: ProcessesState): Continued[] {
    this.#leaves.continueFrom(leaves);
    drainPipes(this.#outputs.poller, drains);
    const kept = memory === null ? null : recoverOutput(memory);
    const continued = inOrder(processes, (state) => state).map((state) =>
      this.#continued(state, kept?.get(state.number), this.#records.existing(state.record)),
    );
    if (memory !== null) closeSync(memory);
    return continued;
  }

  /** The processes of a daemon that was killed, in the order of their ends. */
  recover({ processes, outputs, inFlight }: Recovered): Continued[] {
    const kept = new Map([...outputs].map(([key, memory]) => [key, recoverOutput(memory)]));
    const continued = inOrder(processes, ({ recorded }) => recorded).map(({ key, recorded, descriptors }) => {
      const state = { ...stateOf(recorded, descriptors), startId: recorded.startId };
      const output = kept.get(recorded.output)?.get(recorded.number);
      const isRead = inFlight?.output === recorded.output && inFlight.read.process === recorded.number;
      const read = isRead ? inFlight.read : null;
      return this.#continued(state, output, this.#records.existing(key), read);
    });
    for (const memory of outputs.values()) closeSync(memory);
    return continued;
  }

  /** Removes cgroups of nobody when they are empty; kills what was about to be started when the daemon was killed. */
  release(leaves: readonly Cgroup[], { processes, starting }: Recovered): void {
    const running = processes.filter(({ recorded }) => recorded.end === null);
    const known = new Set(running.map(({ recorded }) => recorded.leaf));
    for (const leaf of leaves.filter(({ path }) => !known.has(path))) {
      if (starting.has(leaf.path)) leaf.kill();
      this.#leaves.release(leaf);
    }
  }

  *#statesOf(all: readonly ManagedProcess[]): Generator<ProcessesState['processes'][number]> {
    for (const process of all)
      yield {
        ...process.stateWithInput,
        startId: this.#startIds.idOf(process),
        record: this.#records.keyOf(process),
      };
  }

  #continued(
    state: Continued['state'],
    kept: KeptOutput | undefined,
    record: KeptRecord,
    inFlight: InFlight | null = null,
  ): Continued {
    const path = this.#outputs.next();
    const totals = restoreHistory(path.history, kept ?? { from: state.totals, records: () => [] });
    const leaf = state.leaf === null ? null : this.#leaves.existing(state.leaf);
    // After a crash the totals are those of the kept output.
    const process = takeOverProcess({ ...state, totals }, leaf, path, inFlight);
    this.#records.follow(process, state.startId, record);
    return { process, state };
  }
}

/** Running ones first. */
function inOrder<T>(processes: readonly T[], endOf: (one: T) => { readonly endedAt: number }): T[] {
  return processes.toSorted((a, b) => endOf(a).endedAt - endOf(b).endedAt);
}
