import { readFileSync } from 'node:fs';
import { totalmem } from 'node:os';
import { dirname } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Cgroup } from '../../../linux/cgroups/cgroup2.ts';
import { SIGKILL } from '../../../linux/system/signals.ts';
import { refuseUnwritable } from './cgroup-root.ts';

const CONTROLLERS = ['cpu', 'io', 'memory', 'pids'];
const MIB = 1024 * 1024;
/** Interval between checks whether the cgroups are empty, in milliseconds. */
const POLL_MS = 10;

/** Shares of what is scarce, relative to each other and to cgroups beside them; the kernel's default is 100. */
export interface Weights {
  readonly user: number;
  readonly ptys: number;
}

/** Limits of what the clients' processes take of the guest. */
export interface WorkloadLimits {
  /** The most processes and threads in each of the cgroups; null: 40 % of what the kernel allows. */
  readonly maxTasks: number | null;
  /** The most memory, in bytes, of all of them together; null: all but 128 MiB, or an eighth if that is less. */
  readonly maxMemory: number | null;
  readonly cpuWeights: Weights;
  readonly ioWeights: Weights;
}

/** Terminals come before other processes of the user. */
export const DEFAULT_LIMITS: WorkloadLimits = {
  maxTasks: null,
  maxMemory: null,
  cpuWeights: { user: 50, ptys: 200 },
  ioWeights: { user: 10, ptys: 50 },
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
  readonly #limits: WorkloadLimits;

  private constructor(user: Cgroup | null, ptys: Cgroup | null, limits: WorkloadLimits) {
    this.user = user;
    this.ptys = ptys;
    this.#limits = limits;
    // For the peak memory of each process and whether the OOM killer ended it.
    const enabled = this.all().map((cgroup) => cgroup.enableControllers(['memory']));
    this.accountsMemory = enabled.every((controllers) => controllers.length > 0);
  }

  /**
   * Creates both below `root`, with the limits that the available controllers support; null means no cgroups.
   * Throws `failed_precondition` when `root` is not in a writable cgroup v2 hierarchy.
   */
  static create(root: string | null, limits: WorkloadLimits = DEFAULT_LIMITS): WorkloadCgroups {
    if (root === null) return new WorkloadCgroups(null, null, limits);
    return refuseUnwritable(root, () => {
      prepareRoot(root, limits);
      return new WorkloadCgroups(limited(root, 'user', limits), limited(root, 'ptys', limits), limits);
    });
  }

  /** Recreates a cgroup that a process of the guest has removed. */
  restore(kind: 'user' | 'ptys'): void {
    const cgroup = this[kind];
    if (!cgroup) return;
    const root = dirname(cgroup.path);
    prepareRoot(root, this.#limits);
    limited(root, kind, this.#limits).enableControllers(['memory']);
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

/** Its own files of a controller appear when the cgroup above it has enabled that. */
function prepareRoot(root: string, limits: WorkloadLimits): void {
  const cgroup = Cgroup.create(root);
  enableControllers(cgroup);
  limitMemory(cgroup, limits);
}

function limited(root: string, kind: 'user' | 'ptys', limits: WorkloadLimits): Cgroup {
  const cgroup = limitMemory(Cgroup.create(`${root}/${kind}`), limits);
  cgroup.setLimit('pids.max', String(Math.min(limits.maxTasks ?? defaultTasks(), MOST_TASKS)));
  cgroup.setLimit('cpu.weight', String(limits.cpuWeights[kind]));
  cgroup.setLimit('io.weight', `default ${limits.ioWeights[kind]}`);
  return cgroup;
}

/** Of each alone, and of both together. */
function limitMemory(cgroup: Cgroup, { maxMemory }: WorkloadLimits): Cgroup {
  const memory = String(maxMemory ?? workloadMemory(totalmem()));
  cgroup.setLimit('memory.high', memory);
  cgroup.setLimit('memory.max', memory);
  return cgroup;
}
