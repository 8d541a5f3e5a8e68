import { isDeepStrictEqual } from 'node:util';
import { within } from '../../../base/abort.ts';
import { Allowance } from '../../../base/allowance.ts';
import { EnvdError } from '../../../base/errors.ts';
import type { Feed } from '../../../base/feed.ts';
import type { Unread } from '../../../base/unread.ts';
import type { Cgroup } from '../../os/cgroup2.ts';
import type { Lanes } from '../../os/lanes.ts';
import { PipePoller } from '../../os/pipe-ends.ts';
import { SIGKILL, SIGTERM } from '../../os/signals.ts';
import { NoCgroup } from '../../os/spawn.ts';
import type { Guest } from '../guest/guest.ts';
import type { WorkloadCgroups } from './cgroups.ts';
import { DeadlineFeed } from './deadline.ts';
import type { EndReason, ProcessEvent } from './events.ts';
import { History } from './history.ts';
import { HistoryBudget } from './history-budget.ts';
import { Leaves } from './leaf.ts';
import { OutputStore } from './output-store.ts';
import type { ManagedProcess } from './process.ts';
import { launchProcess, type Plan, planLaunch, type StartRequest } from './start.ts';

/** How long clients can connect to a process after its end, in milliseconds. */
const RETENTION_MS = 30_000;
/** Time between SIGTERM and SIGKILL when the daemon stops, in milliseconds. */
const STOP_GRACE_MS = 2000;
/** Limit of all histories together: a multiple of the limit of one, but at most 4 GiB for several. */
const HISTORIES = 64;
const MOST_HISTORY_BYTES = 2 ** 32;
/** Processes with this tag run outside the cgroups that a freeze stops. */
const SYSTEM_TAG = '_system';

/** How a client names a process. */
export type Selector = { readonly pid: number } | { readonly tag: string };

export interface ProcessOptions {
  /** The daemon's PATH, the default of every process. */
  readonly path: string;
  /** Output that is kept of each process for clients that reconnect, in bytes. */
  readonly historyBytes: number;
  /** Time until a started program must run, in seconds. */
  readonly startTimeout: number;
  /** The most processes that run at a time. */
  readonly maxProcesses: number;
  /** Bounds the output that waits for slow readers. */
  readonly unread: Unread;
  readonly lanes: Lanes;
}

/** Counters since the start of the daemon. */
export interface ProcessCounts {
  started: number;
  readonly ended: Record<EndReason, number>;
  /** In bytes, by stream. */
  readonly output: Record<'stdout' | 'stderr' | 'pty', number>;
}

/** The processes that clients have started: running ones, and ended ones for 30 s. */
export class ProcessTable {
  readonly counts: ProcessCounts = {
    started: 0,
    ended: { exited: 0, signaled: 0, deadline: 0, 'out of memory': 0 },
    output: { stdout: 0, stderr: 0, pty: 0 },
  };
  readonly #running = new Map<number, ManagedProcess>();
  readonly #retained = new Map<number, ManagedProcess>();
  readonly #guest: Guest;
  readonly #cgroups: WorkloadCgroups;
  readonly #options: ProcessOptions;
  readonly #leaves: Leaves;
  readonly #histories: HistoryBudget;
  readonly #store: OutputStore;
  /** Number of the last process, in `#store`. */
  #number = 0;
  readonly #poller = new PipePoller();
  readonly #free: Allowance;
  /** By start id: starts in progress, running processes, and ended ones for 30 s. */
  readonly #starts = new Map<string, Promise<ManagedProcess>>();
  #stopping = false;

  constructor(guest: Guest, cgroups: WorkloadCgroups, options: ProcessOptions) {
    this.#guest = guest;
    this.#cgroups = cgroups;
    this.#options = options;
    this.#free = new Allowance(options.maxProcesses);
    this.#leaves = new Leaves(cgroups.accountsMemory);
    const { historyBytes } = options;
    const together = Math.max(historyBytes, Math.min(HISTORIES * historyBytes, MOST_HISTORY_BYTES));
    this.#histories = new HistoryBudget(together);
    this.#store = new OutputStore(historyBytes, together);
  }

  /**
   * Starts a process and returns a feed from its first event on. After `deadlineMs` (null: no deadline) the process is
   * killed and the feed ends with `deadline_exceeded`. Disposing of the feed does not end the process. A known start id
   * attaches to its process instead; throws `already_exists` when that was started with another command. Throws
   * `resource_exhausted` when too many processes run.
   */
  async start(request: StartRequest, deadlineMs: number | null): Promise<Feed<ProcessEvent>> {
    const known = request.startId !== null && this.#starts.get(request.startId);
    if (known) return attach(await known, request);
    const starting = this.#launch(request);
    if (request.startId !== null) this.#rememberStart(request.startId, starting);
    const process = await starting;
    const feed = process.read(null);
    return deadlineMs === null ? feed : new DeadlineFeed(feed, process, deadlineMs);
  }

  /** The running processes, in the order of their start. */
  list(): ManagedProcess[] {
    return [...this.#running.values()];
  }

  /** A running process. Throws `not_found`. */
  find(selector: Selector): ManagedProcess {
    return pick(this.#running, selector) ?? notFound(selector);
  }

  /** A running process, or one that ended less than 30 s ago. Throws `not_found`. */
  findRetained(selector: Selector): ManagedProcess {
    return pick(this.#running, selector) ?? pick(this.#retained, selector) ?? notFound(selector);
  }

  /**
   * Refuses further starts and ends every process and all its descendants: SIGTERM, SIGKILL after 2 s. Without cgroups
   * only process groups are signalled.
   */
  async stop(): Promise<void> {
    this.#stopping = true;
    this.#cgroups.signal(SIGTERM);
    for (const process of this.list()) if (!process.hasCgroup) process.signal(SIGTERM);
    await within(STOP_GRACE_MS, this.#allEnded(), () => {});
    this.kill();
    await this.#allEnded();
    this.#leaves[Symbol.dispose]();
  }

  /** Refuses further starts and kills all processes without waiting. Throws when a cgroup cannot be killed. */
  kill(): void {
    this.#stopping = true;
    for (const process of this.list()) process.kill();
    this.#cgroups.signal(SIGKILL);
  }

  async #allEnded(): Promise<void> {
    await Promise.all(this.list().map((process) => process.ended));
    await this.#cgroups.emptied();
  }

  async #launch(request: StartRequest): Promise<ManagedProcess> {
    if (this.#stopping) throw new EnvdError('unavailable', 'cannot start a process: the daemon is stopping');
    const { maxProcesses } = this.#options;
    if (!this.#free.take(1)) {
      const text = `cannot start a process: ${maxProcesses} are running (--max-processes)`;
      throw new EnvdError('resource_exhausted', text);
    }
    const release = () => this.#free.release(1);
    try {
      const process = await this.#plan(request);
      void process.ended.then(release);
      return process;
    } catch (error) {
      release();
      throw error;
    }
  }

  async #plan(request: StartRequest): Promise<ManagedProcess> {
    const plan = await planLaunch(request, this.#guest, this.#options.path, this.#options.lanes);
    try {
      return await this.#launchIn(this.#cgroupOf(request), request, plan);
    } catch (error) {
      if (!(error instanceof NoCgroup)) throw error;
      this.#cgroups.restore(kindOf(request));
      return await this.#launchIn(this.#cgroupOf(request), request, plan);
    }
  }

  async #launchIn(cgroup: Cgroup | null, request: StartRequest, plan: Plan): Promise<ManagedProcess> {
    const leaf = cgroup && this.#leaves.create(cgroup);
    try {
      const process = await launchProcess(request, plan, leaf, this.#options.startTimeout * 1000, {
        poller: this.#poller,
        history: this.#history(),
        unread: this.#options.unread,
        written: this.counts.output,
      });
      this.#add(process);
      // `stop` has listed the processes before this one was added.
      if (this.#stopping) process.kill();
      return process;
    } catch (error) {
      leaf?.release();
      throw error;
    }
  }

  #history(): History {
    this.#number += 1;
    return new History(this.#store, this.#number, this.#options.historyBytes, this.#histories);
  }

  /** Forgets the start id with the process, or at once when the start fails. */
  #rememberStart(startId: string, starting: Promise<ManagedProcess>): void {
    this.#starts.set(startId, starting);
    const forget = () => this.#starts.delete(startId);
    starting.then((process) => process.ended).then(() => setTimeout(forget, RETENTION_MS).unref(), forget);
  }

  #cgroupOf(request: StartRequest): Cgroup | null {
    return request.tag === SYSTEM_TAG ? null : this.#cgroups[kindOf(request)];
  }

  #add(process: ManagedProcess): void {
    this.#retained.delete(process.pid);
    this.#running.set(process.pid, process);
    this.counts.started++;
    void process.ended.then(({ reason }) => {
      this.counts.ended[reason]++;
      this.#retire(process);
    });
  }

  #retire(process: ManagedProcess): void {
    // The pid may already belong to a later process.
    const removeFrom = (processes: Map<number, ManagedProcess>) => {
      if (processes.get(process.pid) === process) processes.delete(process.pid);
    };
    removeFrom(this.#running);
    this.#retained.set(process.pid, process);
    const forget = () => {
      removeFrom(this.#retained);
      process.forgetOutput();
    };
    setTimeout(forget, RETENTION_MS).unref();
  }
}

function kindOf({ terminal }: StartRequest): 'user' | 'ptys' {
  return terminal ? 'ptys' : 'user';
}

/** A feed of the whole output of a process, for a repeated start. */
function attach(process: ManagedProcess, { startId, config }: StartRequest): Feed<ProcessEvent> {
  if (!isDeepStrictEqual(process.config, config)) {
    throw new EnvdError(
      'already_exists',
      `start id '${startId}' belongs to process ${process.pid}, which runs another command: use a new id`,
    );
  }
  return process.read({ stdout: 0, stderr: 0, pty: 0 });
}

/** The latest process, when several have the same tag. */
function pick(
  processes: ReadonlyMap<number, ManagedProcess>,
  selector: Selector,
): ManagedProcess | undefined {
  if ('pid' in selector) return processes.get(selector.pid);
  return [...processes.values()].findLast((process) => process.tag === selector.tag);
}

function notFound(selector: Selector): never {
  const what = 'pid' in selector ? `pid ${selector.pid}` : `tag ${selector.tag}`;
  throw new EnvdError('not_found', `process with ${what} not found`);
}
