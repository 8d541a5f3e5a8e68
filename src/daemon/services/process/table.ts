import { setTimeout as delay } from 'node:timers/promises';
import { orNextTurn, within } from '../../../base/abort.ts';
import { Allowance } from '../../../base/allowance.ts';
import { EnvdError } from '../../../base/errors.ts';
import { debug } from '../../../base/program/debug.ts';
import type { Unread } from '../../../base/unread.ts';
import type { Cgroup } from '../../linux/cgroups/cgroup2.ts';
import type { Lanes } from '../../linux/lanes/lanes.ts';
import { RecordStore } from '../../linux/memory/record-store.ts';
import { PipePoller } from '../../linux/processes/pipe-ends.ts';
import { NoCgroup } from '../../linux/processes/spawn.ts';
import { monotonicMs } from '../../linux/system/machine.ts';
import { SIGKILL, SIGTERM } from '../../linux/system/signals.ts';
import type { Guest } from '../guest/guest.ts';
import type { WorkloadCgroups } from './cgroups/cgroups.ts';
import { type Leaf, Leaves } from './cgroups/leaf.ts';
import { EndedProcess } from './lifecycle/ended.ts';
import { KnownProcesses, requireSameCommand, type Selector } from './lifecycle/known.ts';
import { ManagedProcess } from './lifecycle/process.ts';
import { keptOf } from './lifecycle/process-config.ts';
import type { ProcessObserver } from './lifecycle/process-log.ts';
import type { ProcessState } from './lifecycle/process-state.ts';
import { type LaunchPlace, launchPlanned, type Plan, type StartRequest } from './lifecycle/start.ts';
import { openPipes, openTerminal } from './output/channels.ts';
import type { ProcessCounts } from './output/events.ts';
import { History } from './output/history.ts';
import { Output } from './output/output.ts';
import { OutputStore } from './output/output-store.ts';
import type { Reader } from './output/reader.ts';
import {
  type EarlierProcesses,
  outputsOf,
  type ProcessesSnapshot,
  takeOverProcess,
} from './recovery/earlier.ts';
import { ProcessRecords } from './recovery/records.ts';

/** Between SIGTERM and SIGKILL when the daemon stops. */
const STOP_GRACE_MS = 2000;
/** Processes with this tag run outside the cgroups that a freeze stops. */
const SYSTEM_TAG = '_system';
const STOPPING = 'the daemon is stopping';
/** Interval of looks whether readers have taken all output, in milliseconds. */
const SETTLE_MS = 5;
const NO_OFFSETS = { stdout: 0, stderr: 0, pty: 0 };

/** A start under way. */
type Starting = StartRequest & { readonly deadlineMs: number | null };

export interface ProcessOptions {
  /** The daemon's PATH, the default of every process. */
  readonly path: string;
  /** Time until a started program must run, in seconds. */
  readonly startTimeout: number;
  /** The most processes that run at a time. */
  readonly maxProcesses: number;
  /** Output that is kept of each process for clients that reconnect, in bytes. */
  readonly historyBytes: number;
  /** Bounds what waits for slow readers. */
  readonly unread: Unread;
  readonly lanes: Lanes;
  readonly observer?: ProcessObserver;
}

/** The processes that clients have started: running ones, and ended ones for 30 s. */
export class ProcessTable {
  readonly counts: ProcessCounts;
  readonly #known = new KnownProcesses();
  readonly #place: LaunchPlace;
  readonly #cgroups: WorkloadCgroups;
  readonly #options: ProcessOptions;
  readonly #leaves: Leaves;
  readonly #poller = new PipePoller();
  readonly #store: OutputStore;
  readonly #free: Allowance;
  readonly #records: ProcessRecords;
  /** Why no process can be started, or null. */
  #refusal: string | null = null;
  /** Starts under way. */
  readonly #launches = new Set<Promise<ManagedProcess>>();

  constructor(
    guest: Guest,
    cgroups: WorkloadCgroups,
    options: ProcessOptions,
    records = new RecordStore(null, {}, () => {}),
  ) {
    const { path, lanes, maxProcesses, historyBytes } = options;
    this.#place = { guest, path, lanes };
    this.#cgroups = cgroups;
    this.#options = options;
    this.#free = new Allowance(maxProcesses);
    this.#leaves = new Leaves(cgroups.accountsMemory);
    this.#store = new OutputStore(historyBytes);
    this.#records = new ProcessRecords(records, this.#store.memory, this.#poller);
    const ended = { exited: 0, signaled: 0, deadline: 0, 'out of memory': 0, unknown: 0 };
    this.counts = { started: 0, ended, output: { ...NO_OFFSETS } };
  }

  /**
   * Starts a process and returns a feed from its first event on. After `deadlineMs` (null: no deadline) the process is
   * killed and the feed ends with `deadline_exceeded`. Disposing of the feed does not end the process. A known start id
   * attaches to its process instead; throws `already_exists` when that was started with another command. Throws
   * `resource_exhausted` when too many processes run.
   */
  async start(request: StartRequest, deadlineMs: number | null): Promise<Reader> {
    const { startId } = request;
    const known = startId === null ? undefined : this.#known.startedWith(startId);
    const process = await (known ?? this.#launch({ ...request, deadlineMs }));
    // Before anything is awaited: it begins with what comes from now on.
    const feed = known === undefined ? process.read(null, deadlineMs) : attach(process, request);
    await this.#records.kept;
    // Then all its events go into one write.
    if (process instanceof ManagedProcess && process.isExiting) await orNextTurn(process.ended);
    return feed;
  }

  /** The running processes, in the order of their start. */
  list(): ManagedProcess[] {
    return this.#known.running;
  }

  /** A running process. Throws `not_found`. */
  find(selector: Selector): ManagedProcess {
    return this.#known.find(selector);
  }

  /** A running process, or one that ended less than 30 s ago. Throws `not_found`. */
  findRetained(selector: Selector): ManagedProcess | EndedProcess {
    return this.#known.findRetained(selector);
  }

  /**
   * Refuses further starts and ends every process and all its descendants: SIGTERM, SIGKILL after 2 s. Without cgroups
   * only process groups are signalled.
   */
  async stop(): Promise<void> {
    this.#refusal = STOPPING;
    this.#cgroups.signal(SIGTERM);
    for (const process of this.list()) if (!process.hasCgroup) process.signalGroup(SIGTERM);
    await within(STOP_GRACE_MS, this.#allEnded(), () => {});
    this.kill();
    await this.#allEnded();
    this.#leaves[Symbol.dispose]();
  }

  /** Refuses further starts and kills all processes without waiting. Throws when a cgroup cannot be killed. */
  kill(): void {
    this.#refusal = STOPPING;
    for (const process of this.list()) process.kill();
    this.#cgroups.signal(SIGKILL);
  }

  /**
   * Refuses further starts with this reason and waits for those under way, at most `limitMs`; false when some are not
   * completed by then. `goOn` undoes it.
   */
  async refuseStarts(reason: string, limitMs: number): Promise<boolean> {
    this.#refusal = reason;
    await within(limitMs, Promise.allSettled(this.#launches), () => []);
    return this.#launches.size === 0;
  }

  /** Undoes `refuseStarts` and `settle`; a stop goes on. */
  goOn(): void {
    if (this.#refusal !== STOPPING) this.#refusal = null;
    for (const process of this.list()) process.releaseOutput();
  }

  /** Reads no more output until `goOn`, and waits until readers have taken what was read, at most `limitMs`. */
  async settle(limitMs: number): Promise<void> {
    for (const process of this.list()) process.holdOutput();
    const hasUnread = () => this.#known.all.some((process) => process.hasUnread);
    for (let waited = 0; waited < limitMs && hasUnread(); waited += SETTLE_MS) await delay(SETTLE_MS);
  }

  /** The state of all processes for a later program of this process; that of each is made when it is taken. */
  get state(): ProcessesSnapshot {
    const all = this.#known.all;
    const used = new Set<number | null>(all.flatMap(({ state: { ends } }) => Object.values(ends)));
    return {
      processes: statesOf(all),
      drains: this.#poller.descriptors.filter((descriptor) => !used.has(descriptor)),
      memory: this.#store.memory.descriptor,
      leaves: this.#leaves.state,
    };
  }

  /** Reads no more output, and records the whole state for a program that comes after this one. */
  handOver(): void {
    for (const process of this.list()) process.handOver();
    debug('process', 'handed over', () => ({ processes: this.#known.all.length }));
  }

  /** Continues with the processes of an earlier daemon, and kills those that it was about to start. */
  takeOver(earlier: EarlierProcesses): void {
    if (earlier.leaves) this.#leaves.continueFrom(earlier.leaves);
    for (const descriptor of earlier.drains) this.#poller.read(descriptor, () => {}).discard();
    for (const { state, output } of outputsOf(earlier, () => this.#newOutput())) {
      const leaf = state.leaf === null ? null : this.#leaves.existing(state.leaf);
      const record = this.#records.existing(state.record);
      const process = takeOverProcess(state, output, this.#poller, record, leaf);
      if (process instanceof EndedProcess) this.#known.retire(process);
      else this.#continueWith(process);
    }
    const running = new Set(earlier.processes.filter(({ end }) => end === null).map(({ leaf }) => leaf));
    for (const leaf of this.#cgroups.leaves().filter(({ path }) => !running.has(path))) {
      if (earlier.starting.has(leaf.path)) leaf.kill();
      this.#leaves.release(leaf);
    }
  }

  async #allEnded(): Promise<void> {
    await Promise.all(this.list().map((process) => process.ended));
    await this.#cgroups.emptied();
  }

  #newOutput(): Output {
    return new Output(new History(this.#store), {
      unread: this.#options.unread,
      written: this.counts.output,
    });
  }

  #launch(request: Starting): Promise<ManagedProcess> {
    const starting = this.#launchWithinLimit(request);
    if (request.startId !== null) this.#known.starting(request.startId, starting);
    return starting;
  }

  async #launchWithinLimit(request: Starting): Promise<ManagedProcess> {
    if (this.#refusal !== null)
      throw new EnvdError('unavailable', `cannot start a process: ${this.#refusal}`);
    if (!this.#free.take(1)) {
      const text = `cannot start a process: ${this.#options.maxProcesses} are running (--max-processes)`;
      throw new EnvdError('resource_exhausted', text);
    }
    const launch = launchPlanned(request, this.#place, (plan) => this.#launchPlan(request, plan));
    this.#launches.add(launch);
    freePlaceAfter(launch, this.#free);
    try {
      return await launch;
    } finally {
      this.#launches.delete(launch);
    }
  }

  async #launchPlan(request: Starting, plan: Plan): Promise<ManagedProcess> {
    const kind = request.terminal ? 'ptys' : 'user';
    const cgroup = request.tag === SYSTEM_TAG ? null : this.#cgroups[kind];
    try {
      return await this.#launchIn(cgroup, request, plan);
    } catch (error) {
      if (!(error instanceof NoCgroup)) throw error;
      this.#cgroups.restore(kind);
      return await this.#launchIn(cgroup, request, plan);
    }
  }

  async #launchIn(cgroup: Cgroup | null, request: Starting, plan: Plan): Promise<ManagedProcess> {
    const leaf = cgroup && this.#leaves.create(cgroup);
    const record = this.#records.starting(leaf?.path ?? null);
    try {
      const output = this.#newOutput();
      const opened = await this.#open(request, plan, leaf, output);
      const { tag, startId, deadlineMs } = request;
      const deadlineAt = deadlineMs === null ? null : monotonicMs() + deadlineMs;
      const config = keptOf(request.config, startId !== null);
      const asked = { config, tag, startId, deadlineAt };
      const process = new ManagedProcess({ ...asked, ...opened, output, leaf, record, past: null });
      this.#add(process, request);
      this.counts.started++;
      // `stop` has listed the processes before this one was added.
      if (this.#refusal === STOPPING) process.kill();
      return process;
    } catch (error) {
      leaf?.release();
      record.drop();
      throw error;
    }
  }

  #open({ terminal, stdin }: StartRequest, plan: Plan, leaf: Leaf | null, output: Output) {
    const launch = { ...plan, cgroup: leaf?.path ?? null, limitMs: this.#options.startTimeout * 1000 };
    if (terminal) return openTerminal(launch, terminal, this.#poller, output);
    return openPipes(launch, stdin, this.#poller, output);
  }

  #continueWith(process: ManagedProcess): void {
    // There may be more of them than are allowed now.
    if (this.#free.take(1)) void process.ended.then(() => this.#free.release(1));
    this.#add(process, null);
  }

  /** `request`: with which it was started now; null: an earlier daemon has started it. */
  #add(process: ManagedProcess, request: StartRequest | null): void {
    const { observer } = this.#options;
    const observed = { pid: process.pid, tag: process.tag, user: request?.user.name ?? null };
    this.#known.add(process);
    if (request !== null) observer?.started(observed, request.config);
    void process.ended.then(({ end }) => {
      this.counts.ended[end.reason]++;
      observer?.ended(observed, end);
    });
  }
}

function* statesOf(all: readonly (ManagedProcess | EndedProcess)[]): Generator<ProcessState> {
  for (const process of all) yield process.stateWithRecord;
}

/** A reader of the whole output of a process, for a repeated start. */
function attach(process: ManagedProcess | EndedProcess, { config }: StartRequest): Reader {
  requireSameCommand(process, config);
  return process.read(NO_OFFSETS);
}

/**
 * Frees the place of a process at its end, or when it cannot be started. Not a closure of the start, which would hold the request with
 * all its arguments as long as the process runs.
 */
function freePlaceAfter(launch: Promise<ManagedProcess>, places: Allowance): void {
  const free = () => places.release(1);
  void launch.then(({ ended }) => ended.then(free), free);
}
