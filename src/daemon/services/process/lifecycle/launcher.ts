import { monotonicMs } from '../../../../base/monotonic.ts';
import { debug } from '../../../../base/program/debug.ts';
import type { Quota } from '../../../../base/quota.ts';
import { PipePoller } from '../../../linux/processes/pipe-ends.ts';
import { NoCgroup } from '../../../linux/processes/spawn.ts';
import type { RecordStore } from '../../records/record-store.ts';
import type { WorkloadCgroups } from '../cgroups/cgroups.ts';
import { Leaves } from '../cgroups/leaf.ts';
import { makeLimitedCgroup } from '../limits/limits.ts';
import { openChannels } from '../output/channels.ts';
import type { OutputStream } from '../output/events.ts';
import { History } from '../output/history.ts';
import { Output } from '../output/output.ts';
import { OutputStore } from '../output/output-store.ts';
import { type EarlierProcesses, outputsOf, type ProcessesSnapshot, takeOverProcess } from './earlier.ts';
import type { EndedProcess } from './ended.ts';
import { ManagedProcess } from './process.ts';
import { keptOf } from './process-config.ts';
import { type BegunStart, type ProcessRecord, ProcessRecords } from './records.ts';
import { type LaunchPlace, type Plan, planAgain, planStart, type StartRequest } from './start.ts';

/** Processes with this tag run outside the cgroups that a freeze stops. */
const SYSTEM_TAG = '_system';

export interface LauncherOptions extends LaunchPlace {
  /** A started program must run within this time, in seconds. */
  readonly startTimeout: number;
  /** This much output of each process is kept for clients that reconnect, in bytes. */
  readonly historyBytes: number;
  readonly unread: Quota;
}

/** Makes new processes, and takes over those of an earlier daemon. It owns what they share. */
export class Launcher implements Disposable {
  /** Counts the bytes of output of all processes, by stream. */
  readonly written: Record<OutputStream, number> = { stdout: 0, stderr: 0, pty: 0 };
  readonly #cgroups: WorkloadCgroups;
  readonly #options: LauncherOptions;
  readonly #leaves: Leaves;
  readonly #poller = new PipePoller();
  readonly #store: OutputStore;
  readonly #records: ProcessRecords;

  constructor(cgroups: WorkloadCgroups, options: LauncherOptions, records: RecordStore) {
    this.#cgroups = cgroups;
    this.#options = options;
    this.#leaves = new Leaves(cgroups.accountsMemory);
    this.#store = new OutputStore(options.historyBytes);
    this.#records = new ProcessRecords(records, this.#store.memory, this.#poller);
  }

  /** Resolves when all records would survive a kill now, after a second at most. It is null if they would already. */
  get recorded(): Promise<void> | null {
    return this.#records.kept;
  }

  /** Starts a process in a cgroup of its own, and kills it after `deadlineMs`. A plan that fails may have another one. */
  async launch(request: StartRequest, deadlineMs: number | null): Promise<ManagedProcess> {
    let plan = await planStart(request, this.#options);
    for (let isRestored = false; ; ) {
      try {
        return await this.#spawn(plan, request, deadlineMs);
      } catch (error) {
        const isAgain: boolean = error instanceof NoCgroup && !isRestored;
        if (isAgain) this.#cgroups.restore(kindOf(request));
        else plan = await planAgain(request, this.#options, plan, error);
        isRestored ||= isAgain;
      }
    }
  }

  /** Returns what all processes share, for a later program. `used` has the descriptors that processes use. */
  stateBeside(used: ReadonlySet<number | null>): Omit<ProcessesSnapshot, 'processes' | 'starting'> {
    const drains = this.#poller.descriptors.filter((descriptor) => !used.has(descriptor));
    return { drains, memory: this.#store.memory.descriptor, leaves: this.#leaves.state };
  }

  /** Continues with an earlier daemon's processes, in the order of their ends. Kills those that it was about to start. */
  *takeOver(earlier: EarlierProcesses): Generator<ManagedProcess | EndedProcess> {
    if (earlier.leaves) this.#leaves.continueFrom(earlier.leaves);
    for (const descriptor of earlier.drains) this.#poller.read(descriptor, () => {}).discard();
    for (const { state, output } of outputsOf(earlier, () => this.#newOutput())) {
      const leaf = state.leaf === null ? null : this.#leaves.existing(state.leaf);
      yield takeOverProcess(state, output, this.#poller, this.#records.existing(state.record), leaf);
    }
    const running = new Set(earlier.processes.filter(({ end }) => end === null).map(({ leaf }) => leaf));
    const starting = new Set(earlier.starting.map(({ leaf }) => leaf));
    for (const leaf of this.#cgroups.leaves().filter(({ path }) => !running.has(path))) {
      if (starting.has(leaf.path)) leaf.kill();
      this.#leaves.release(leaf);
    }
  }

  /** Records a start whose process is lost, because this program may be killed, too. Returns the record. */
  recordLost(start: BegunStart): ProcessRecord {
    return this.#records.starting({ ...start, leaf: null });
  }

  [Symbol.dispose](): void {
    this.#leaves[Symbol.dispose]();
  }

  async #spawn(plan: Plan, request: StartRequest, deadlineMs: number | null): Promise<ManagedProcess> {
    const { config, tag, startId, limits = null } = request;
    const cgroup = tag === SYSTEM_TAG ? null : this.#cgroups[kindOf(request)];
    const leaf = cgroup && this.#leaves.create(cgroup, limits !== null);
    const record = this.#records.starting({ leaf: leaf?.path ?? null, startId });
    // If this program is killed, the next one must know that the id was used.
    if (startId !== null) await this.recorded;
    const output = this.#newOutput();
    const launch = {
      ...plan,
      cgroup: leaf?.path ?? null,
      limitMs: this.#options.startTimeout * 1000,
      limits,
    };
    try {
      if (limits) makeLimitedCgroup(launch.cgroup, limits);
      const opened = await openChannels(launch, request, this.#poller, output);
      debug('process', 'process launched', () => ({ pid: opened.spawned.pid, inCgroup: leaf !== null }));
      const deadlineAt = deadlineMs === null ? null : monotonicMs() + deadlineMs;
      const asked = { config: keptOf(config, startId !== null), tag, startId, deadlineAt };
      return new ManagedProcess({ ...asked, ...opened, output, leaf, record, past: null });
    } catch (error) {
      leaf?.release();
      record.drop();
      throw error;
    }
  }

  #newOutput(): Output {
    const { unread } = this.#options;
    return new Output(new History(this.#store), { unread, written: this.written });
  }
}

/** Returns the kind of the cgroup in which a process is started. */
function kindOf({ terminal }: StartRequest): 'ptys' | 'user' {
  return terminal ? 'ptys' : 'user';
}
