import { readFileSync } from 'node:fs';
import { totalmem } from 'node:os';
import { dirname } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { EnvdError, isSystemError } from '../../../base/errors.ts';
import { Cgroup } from '../../os/cgroup2.ts';
import { SIGKILL } from '../../os/signals.ts';

const CONTROLLERS = ['cpu', 'io', 'memory', 'pids'];
const MIB = 1024 * 1024;
/** Interval between checks whether the cgroups are empty, in milliseconds. */
const POLL_MS = 10;

/** CPU and I/O weights: under contention terminals come before other processes of the user. */
const WEIGHTS = {
  user: { 'cpu.weight': '50', 'io.weight': 'default 10' },
  ptys: { 'cpu.weight': '200', 'io.weight': 'default 50' },
};

/** Memory limit of the workload, in bytes; the rest is reserved for the system and the daemon. */
function workloadMemory(total: number): number {
  return Math.floor(total - Math.min(total / 8, 128 * MIB));
}

/** The largest value of pids.max. Source: PID_MAX_LIMIT, include/linux/threads.h. */
const MOST_TASKS = 4_194_304;

/**
 * Processes and threads that each of the cgroups may have: a fork bomb in one leaves some to the other and to the system.
 * Source: proc_sys_kernel(5).
 */
function defaultTasks(): number {
  const limits = ['threads-max', 'pid_max'].map((name) =>
    Number(readFileSync(`/proc/sys/kernel/${name}`, 'utf8')),
  );
  return Math.floor(0.4 * Math.min(...limits));
}

/** The cgroups that the clients' processes run in: `ptys` for terminals, `user` for all others. */
export class WorkloadCgroups implements Disposable {
  /** Null without cgroup v2, as is `ptys`. */
  readonly user: Cgroup | null;
  readonly ptys: Cgroup | null;
  /** Whether the memory controller is enabled for the cgroups below. */
  readonly accountsMemory: boolean;
  readonly #maxTasks: number;

  private constructor(user: Cgroup | null, ptys: Cgroup | null, maxTasks = 0) {
    this.user = user;
    this.ptys = ptys;
    this.#maxTasks = maxTasks;
    // For the peak memory of each process and whether the OOM killer ended it.
    const enabled = this.all().map((cgroup) => cgroup.enableControllers(['memory']));
    this.accountsMemory = enabled.every((controllers) => controllers.length > 0);
  }

  /**
   * Creates both below `root`, with the limits that the available controllers support; null means no cgroups. `maxTasks`:
   * the most processes and threads in each; null: 40 % of what the kernel allows.
   * Throws `failed_precondition` when `root` is not in a writable cgroup v2 hierarchy.
   */
  static create(root: string | null, maxTasks: number | null = null): WorkloadCgroups {
    if (root === null) return new WorkloadCgroups(null, null);
    const tasks = Math.min(maxTasks ?? defaultTasks(), MOST_TASKS);
    try {
      enableControllers(Cgroup.create(root));
      return new WorkloadCgroups(
        limited(Cgroup.create(`${root}/user`), WEIGHTS.user, tasks),
        limited(Cgroup.create(`${root}/ptys`), WEIGHTS.ptys, tasks),
        tasks,
      );
    } catch (error) {
      if (!isSystemError(error, 'EROFS', 'EACCES', 'EPERM')) throw error;
      throw new EnvdError('failed_precondition', `cgroup root is not writable: '${root}'`, { cause: error });
    }
  }

  /** Recreates a cgroup that a process of the guest has removed. */
  restore(kind: 'user' | 'ptys'): void {
    const cgroup = this[kind];
    if (!cgroup) return;
    enableControllers(Cgroup.create(dirname(cgroup.path)));
    limited(Cgroup.create(cgroup.path), WEIGHTS[kind], this.#maxTasks).enableControllers(['memory']);
  }

  /** Whether the number of tasks is limited: not without the controller `pids`. */
  get limitsTasks(): boolean {
    return this.all().length > 0 && this.all().every((cgroup) => cgroup.has('pids.max'));
  }

  /** Both cgroups; empty without cgroups. */
  all(): Cgroup[] {
    return [this.user, this.ptys].filter((cgroup) => cgroup !== null);
  }

  /** The cgroups of single processes. */
  leaves(): Cgroup[] {
    return this.all().flatMap((cgroup) => cgroup.children());
  }

  /** Signals every process in them, in whatever session or process group. */
  signal(signal: number): void {
    for (const cgroup of this.all().filter((each) => each.exists())) {
      if (signal === SIGKILL) cgroup.kill();
      else for (const leaf of cgroup.children()) leaf.signal(signal);
    }
  }

  /** Resolves when no process is left in them. Polls, because not all of them are children of the daemon. */
  async emptied(): Promise<void> {
    while (this.all().some((cgroup) => cgroup.populated())) await delay(POLL_MS);
  }

  /** Removes what an earlier daemon has left. */
  removeEmptyLeaves(): void {
    for (const cgroup of this.all()) for (const leaf of cgroup.children()) leaf.remove();
  }

  /** Removes empty cgroups; those of processes that outlive the daemon remain. */
  [Symbol.dispose](): void {
    for (const cgroup of this.all().filter((each) => each.exists())) {
      for (const leaf of cgroup.children()) leaf.remove();
      cgroup.remove();
    }
  }
}

/** Enables controllers top-down: a cgroup can only enable those that its parent has enabled for it. */
function enableControllers(root: Cgroup): void {
  const parent = new Cgroup(dirname(root.path));
  if (parent.exists()) enableControllers(parent);
  root.enableControllers(CONTROLLERS);
}

function limited(cgroup: Cgroup, weights: Readonly<Record<string, string>>, tasks: number): Cgroup {
  const memory = String(workloadMemory(totalmem()));
  const limits = { 'memory.high': memory, 'memory.max': memory, 'pids.max': String(tasks), ...weights };
  for (const [file, value] of Object.entries(limits)) cgroup.setLimit(file, value);
  return cgroup;
}
