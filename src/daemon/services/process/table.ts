import { setTimeout as delay } from 'node:timers/promises';
import { waitOneTurnFor, within } from '../../../base/abort.ts';
import { EnvdError } from '../../../base/errors.ts';
import { debug } from '../../../base/program/debug.ts';
import { Semaphore } from '../../../base/semaphore.ts';
import { SIGKILL, SIGTERM } from '../../linux/system/signals.ts';
import type { Guest } from '../guest/guest.ts';
import { RecordStore } from '../records/record-store.ts';
import type { WorkloadCgroups } from './cgroups/cgroups.ts';
import type { EarlierProcesses, ProcessesSnapshot } from './lifecycle/earlier.ts';
import { EndedProcess } from './lifecycle/ended.ts';
import { Launcher, type LauncherOptions } from './lifecycle/launcher.ts';
import { ManagedProcess } from './lifecycle/process.ts';
import { ProcessIndex, requireSameCommand, type Selector } from './lifecycle/process-index.ts';
import type { ProcessObserver } from './lifecycle/process-log.ts';
import type { RecordedState } from './lifecycle/process-state.ts';
import type { StartRequest } from './lifecycle/start.ts';
import type { ProcessCounts } from './output/events.ts';
import type { Reader } from './output/reader.ts';

/** When the daemon stops, this time passes between SIGTERM and SIGKILL, in milliseconds. */
const STOP_GRACE_MS = 2000;
const STOPPING = 'the daemon is stopping';
/** At this interval it is checked whether readers have taken all output, in milliseconds. */
const SETTLE_MS = 5;
const NO_OFFSETS = { stdout: 0, stderr: 0, pty: 0 };

interface ProcessOptions extends Omit<LauncherOptions, 'guest'> {
  /** At most this many processes run at a time. */
  readonly maxProcesses: number;
  readonly observer?: ProcessObserver;
}

/** The processes that clients have started: running ones, and ended ones for 30 s. */
export class ProcessTable {
  readonly counts: ProcessCounts;
  readonly #known = new ProcessIndex();
  readonly #cgroups: WorkloadCgroups;
  readonly #options: ProcessOptions;
  readonly #launcher: Launcher;
  readonly #free: Semaphore;
  /** Says why no process can be started, or is null. */
  #refusal: string | null = null;
  readonly #launches = new Set<Promise<ManagedProcess>>();

  constructor(
    guest: Guest,
    cgroups: WorkloadCgroups,
    options: ProcessOptions,
    records = new RecordStore(null, {}, () => {}),
  ) {
    this.#cgroups = cgroups;
    this.#options = options;
    this.#launcher = new Launcher(cgroups, { guest, ...options }, records);
    this.#free = new Semaphore(options.maxProcesses);
    const ended = { exited: 0, signaled: 0, deadline: 0, 'out of memory': 0, unknown: 0 };
    this.counts = { started: 0, ended, output: this.#launcher.written };
  }

  /**
   * Starts a process and returns a feed from its first event on. After `deadlineMs` (null means no deadline) the
   * process is killed and the feed ends with `deadline_exceeded`. Disposing of the feed does not end the process. A
   * known start id attaches to its process instead. Throws `already_exists` when that was started with another command,
   * `aborted` when an earlier daemon was killed before it knew its process, and `resource_exhausted` when too many run.
   */
  async start(request: StartRequest, deadlineMs: number | null): Promise<Reader> {
    const { startId } = request;
    const known = startId === null ? undefined : this.#known.startedWith(startId);
    const starting = known ?? this.#launch(request, deadlineMs);
    if (starting !== known && startId !== null) this.#known.starting(startId, starting);
    const process = await starting;
    // The feed is made before anything is awaited, so that it misses no event.
    if (known) requireSameCommand(process, request.config);
    const feed = known
      ? process.output.read(process.pid, NO_OFFSETS)
      : process.output.read(process.pid, null, deadlineMs);
    await this.#launcher.recorded;
    // After this wait all events of the process go into one write.
    if (process instanceof ManagedProcess && process.isExiting) await waitOneTurnFor(process.ended);
    return feed;
  }

  /** Returns the running processes, in the order of their start. */
  list(): ManagedProcess[] {
    return this.#known.running;
  }

  /** Returns a running process. Throws `not_found`. */
  find(selector: Selector): ManagedProcess {
    return this.#known.find(selector);
  }

  /** Returns a running process, or one that ended less than 30 s ago. Throws `not_found`. */
  findRetained(selector: Selector): ManagedProcess | EndedProcess {
    return this.#known.findRetained(selector);
  }

  /**
   * Refuses further starts and ends every process with all its descendants, by SIGTERM and, after 2 s, by SIGKILL.
   * Without cgroups it signals only process groups.
   */
  async stop(): Promise<void> {
    this.#refusal = STOPPING;
    this.#cgroups.signal(SIGTERM);
    for (const process of this.list()) if (!process.hasCgroup) process.signalGroup(SIGTERM);
    await within(STOP_GRACE_MS, this.#allEnded(), () => {});
    this.kill();
    await this.#allEnded();
    this.#launcher[Symbol.dispose]();
  }

  /** Refuses further starts and kills all processes without waiting. Throws when a cgroup cannot be killed. */
  kill(): void {
    this.#refusal = STOPPING;
    for (const process of this.list()) process.kill();
    this.#cgroups.signal(SIGKILL);
  }

  /**
   * Refuses further starts with this reason and waits at most `limitMs` for those under way. Returns false when some
   * are not completed by then. `goOn` undoes it.
   */
  async refuseStarts(reason: string, limitMs: number): Promise<boolean> {
    this.#refusal = reason;
    await within(limitMs, Promise.allSettled(this.#launches), () => []);
    return this.#launches.size === 0;
  }

  /** Undoes `refuseStarts` and `settle`. It does not undo `stop`. */
  goOn(): void {
    if (this.#refusal !== STOPPING) this.#refusal = null;
    for (const { output } of this.list()) output.release();
  }

  /** Reads no more output until `goOn`, and waits at most `limitMs` until readers have taken what was read. */
  async settle(limitMs: number): Promise<void> {
    for (const { output } of this.list()) output.hold();
    const hasUnread = () => this.#known.all.some(({ output }) => output.hasUnread);
    for (let waited = 0; waited < limitMs && hasUnread(); waited += SETTLE_MS) await delay(SETTLE_MS);
  }

  /** Returns the state of all processes for a later program of this process. Each is made when it is taken. */
  get state(): ProcessesSnapshot {
    const all = this.#known.all;
    const used = new Set<number | null>(all.flatMap(({ state: { ends } }) => Object.values(ends)));
    const starting = this.#known.lost.map((startId) => ({ leaf: null, startId }));
    return { ...this.#launcher.stateBeside(used), starting, processes: statesOf(all) };
  }

  /** Reads no more output, and records the whole state for a program that comes after this one. */
  handOver(): void {
    for (const process of this.list()) process.handOver();
    debug('process', 'processes handed over', () => ({ processes: this.#known.all.length }));
  }

  /** Continues with the processes of an earlier daemon, and kills those that it was about to start. */
  takeOver(earlier: EarlierProcesses): void {
    for (const process of this.#launcher.takeOver(earlier)) {
      if (process instanceof EndedProcess) this.#known.retire(process);
      // There may be more of them than are allowed now.
      else this.#add(process, null, this.#free.take());
    }
    for (const start of earlier.starting)
      if (start.startId !== null) this.#known.lose(start.startId, this.#launcher.recordLost(start));
  }

  async #allEnded(): Promise<void> {
    await Promise.all(this.list().map((process) => process.ended));
    await this.#cgroups.emptied();
  }

  async #launch(request: StartRequest, deadlineMs: number | null): Promise<ManagedProcess> {
    using prepared = request.prepare ? await request.prepare() : null;
    if (this.#refusal !== null)
      throw new EnvdError('unavailable', `cannot start a process: ${this.#refusal}`);
    if (!this.#free.take()) {
      const { maxProcesses } = this.#options;
      const text = `cannot start a process: ${maxProcesses} are running (--max-processes): end some, or try again later`;
      throw new EnvdError('resource_exhausted', text);
    }
    const launch = this.#launcher.launch(request, deadlineMs);
    launch.catch(() => this.#free.release());
    this.#launches.add(launch);
    try {
      const process = await launch;
      this.#add(process, request, true);
      this.counts.started++;
      prepared?.started(process);
      // `stop` has listed the processes before this one was added.
      if (this.#refusal === STOPPING) process.kill();
      return process;
    } finally {
      this.#launches.delete(launch);
    }
  }

  /**
   * Adds a process that runs. `request` is null if an earlier daemon has started it. `hasPlace` says that it has taken a place,
   * which its end frees. No closure may hold the request, because its arguments may have megabytes.
   */
  #add(process: ManagedProcess, request: StartRequest | null, hasPlace: boolean): void {
    const { observer } = this.#options;
    const observed = { pid: process.pid, tag: process.tag, user: request?.user.name ?? null };
    this.#known.add(process);
    if (request !== null) observer?.started(observed, request.config);
    void process.ended.then(({ end }) => {
      if (hasPlace) this.#free.release();
      this.counts.ended[end.reason]++;
      observer?.ended(observed, end);
    });
  }
}

function* statesOf(all: readonly (ManagedProcess | EndedProcess)[]): Generator<RecordedState> {
  for (const process of all) yield process.stateWithRecord;
}
