import { orNextTurn, within } from '../../../base/abort.ts';
import { Allowance } from '../../../base/allowance.ts';
import { EnvdError } from '../../../base/errors.ts';
import type { Feed } from '../../../base/feed.ts';
import { monotonicMs } from '../../../base/monotonic.ts';
import type { Cgroup } from '../../linux/cgroups/cgroup2.ts';
import type { Lanes } from '../../linux/lanes/lanes.ts';
import { RecordStore } from '../../linux/memory/record-store.ts';
import { NoCgroup } from '../../linux/processes/spawn.ts';
import { SIGKILL, SIGTERM } from '../../linux/system/signals.ts';
import type { Guest } from '../guest/guest.ts';
import type { WorkloadCgroups } from './cgroups/cgroups.ts';
import { Leaves } from './cgroups/leaf.ts';
import { DeadlineFeed, killAfter } from './deadline.ts';
import { KnownProcesses, RETENTION_MS } from './lifecycle/known.ts';
import { freePlaceAfter, type LaunchPlace, launchPlanned } from './lifecycle/launch-planned.ts';
import type { ManagedProcess } from './lifecycle/process.ts';
import type { ProcessObserver } from './lifecycle/process-log.ts';
import { notFound, type Selector } from './lifecycle/selector.ts';
import { kindOf, launchProcess, type Plan, type StartRequest } from './lifecycle/start.ts';
import type { ProcessCounts, ProcessEvent } from './output/events.ts';
import { type OutputOptions, OutputPaths } from './recovery/output-paths.ts';
import { ProcessRecords, type Recovered } from './recovery/records.ts';
import { attach, StartIds } from './recovery/start-ids.ts';
import { type Continued, Succession } from './recovery/succession.ts';
import type { ProcessesSnapshot, ProcessesState } from './recovery/take-over.ts';

/** Between SIGTERM and SIGKILL when the daemon stops. */
const STOP_GRACE_MS = 2000;
/** Processes with this tag run outside the cgroups that a freeze stops. */
const SYSTEM_TAG = '_system';
const STOPPING = 'the daemon is stopping';

/** A start under way. */
type Starting = StartRequest & { readonly deadlineMs: number | null };

export interface ProcessOptions extends OutputOptions {
  /** The daemon's PATH, the default of every process. */
  readonly path: string;
  /** Time until a started program must run, in seconds. */
  readonly startTimeout: number;
  /** The most processes that run at a time. */
  readonly maxProcesses: number;
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
  readonly #outputs: OutputPaths;
  readonly #free: Allowance;
  readonly #startIds = new StartIds(RETENTION_MS);
  readonly #records: ProcessRecords;
  readonly #succession: Succession;
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
    this.#place = { guest, daemonPath: options.path, lanes: options.lanes };
    this.#cgroups = cgroups;
    this.#options = options;
    this.#free = new Allowance(options.maxProcesses);
    this.#leaves = new Leaves(cgroups.accountsMemory);
    this.#records = new ProcessRecords(records);
    this.#outputs = new OutputPaths(options, (memory) => this.#records.keepOutput(memory));
    this.#records.keepReads(this.#outputs.poller);
    this.#succession = new Succession(this.#leaves, this.#outputs, this.#startIds, this.#records);
    const ended = { exited: 0, signaled: 0, deadline: 0, 'out of memory': 0, unknown: 0 };
    this.counts = { started: 0, ended, output: this.#outputs.written };
  }

  /**
   * Starts a process and returns a feed from its first event on. After `deadlineMs` (null: no deadline) the process is
   * killed and the feed ends with `deadline_exceeded`. Disposing of the feed does not end the process. A known start id
   * attaches to its process instead; throws `already_exists` when that was started with another command. Throws
   * `resource_exhausted` when too many processes run. Calls `found` with the process.
   */
  async start(
    request: StartRequest,
    deadlineMs: number | null,
    found = (_process: ManagedProcess) => {},
  ): Promise<Feed<ProcessEvent>> {
    const known = request.startId === null ? undefined : this.#startIds.get(request.startId);
    const starting = known ?? this.#launch({ ...request, deadlineMs });
    if (request.startId !== null && known === undefined) this.#startIds.remember(request.startId, starting);
    const process = await starting;
    found(process);
    // Before anything is awaited: it begins with what comes from now on.
    const feed = known === undefined ? process.read(null) : attach(process, request);
    await this.#records.kept;
    // Then all its events go into one write.
    if (process.isOver) await orNextTurn(process.ended);
    return known !== undefined || deadlineMs === null ? feed : new DeadlineFeed(feed, deadlineMs);
  }

  /** The running processes, in the order of their start. */
  list(): ManagedProcess[] {
    return this.#known.running;
  }

  /** A running process. Throws `not_found`. */
  find(selector: Selector): ManagedProcess {
    return this.#known.find(selector) ?? notFound(selector);
  }

  /** A running process, or one that ended less than 30 s ago. Throws `not_found`. */
  findRetained(selector: Selector): ManagedProcess {
    return this.#known.findRetained(selector) ?? notFound(selector);
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
    for (const process of this.#known.all) process.releaseOutput();
  }

  /** Reads no more output until `goOn`, and waits until readers have taken what was read, at most `limitMs`. */
  settle(limitMs: number): Promise<void> {
    return this.#succession.settle(this.#known.all, limitMs);
  }

  /** The state of all processes for a later program of this process. */
  get state(): ProcessesSnapshot {
    return this.#succession.stateOf(this.#known.all);
  }

  /** Reads no more output, and keeps the whole state for a program that comes after this one. */
  handOver(): void {
    this.#succession.handOver(this.#known.all);
  }

  /** Continues with the processes of an earlier program; closes its kept output. */
  takeOver(state: ProcessesState): void {
    for (const process of this.#succession.takeOver(state)) this.#continueWith(process);
  }

  /** Continues with the processes of a daemon that was killed, and ends those that it was about to start. */
  recover(recovered: Recovered): void {
    for (const process of this.#succession.recover(recovered)) this.#continueWith(process);
    this.#succession.release(this.#cgroups.leaves(), recovered);
  }

  async #allEnded(): Promise<void> {
    await Promise.all(this.list().map((process) => process.ended));
    await this.#cgroups.emptied();
  }

  async #launch(request: Starting): Promise<ManagedProcess> {
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
    try {
      return await this.#launchIn(this.#cgroupOf(request), request, plan);
    } catch (error) {
      if (!(error instanceof NoCgroup)) throw error;
      this.#cgroups.restore(kindOf(request));
      return await this.#launchIn(this.#cgroupOf(request), request, plan);
    }
  }

  async #launchIn(cgroup: Cgroup | null, request: Starting, plan: Plan): Promise<ManagedProcess> {
    const leaf = cgroup && this.#leaves.create(cgroup);
    const record = this.#records.starting(leaf?.path ?? null);
    try {
      const limitMs = this.#options.startTimeout * 1000;
      const process = await launchProcess(request, plan, leaf, limitMs, this.#outputs.next());
      this.#add(process, request);
      if (request.startId !== null) this.#startIds.assign(request.startId, process);
      // Before its first record, which has it then.
      if (request.deadlineMs !== null) killAfter(process, request.deadlineMs);
      this.#records.follow(process, request.startId, record);
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

  #continueWith({ process, state }: Continued): void {
    if (state.startId !== null) this.#startIds.continueWith(state.startId, process);
    if (state.end) {
      this.#known.retire(process);
      return;
    }
    // There may be more of them than are allowed now.
    if (this.#free.take(1)) void process.ended.then(() => this.#free.release(1));
    if (state.deadlineAt !== null) killAfter(process, state.deadlineAt - monotonicMs());
    this.#add(process, null);
  }

  #cgroupOf(request: StartRequest): Cgroup | null {
    return request.tag === SYSTEM_TAG ? null : this.#cgroups[kindOf(request)];
  }

  /** `request`: with which it was started now; null: an earlier daemon has started it. */
  #add(process: ManagedProcess, request: StartRequest | null): void {
    const { observer } = this.#options;
    const observed = { pid: process.pid, tag: process.tag, user: request?.user.name ?? null };
    this.#known.add(process);
    if (request !== null) observer?.started(observed, request.config);
    void process.ended.then((end) => {
      this.counts.ended[end.reason]++;
      observer?.ended(observed, end);
    });
  }
}
