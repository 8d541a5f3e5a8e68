import { readFileSync } from 'node:fs';
import { totalmem } from 'node:os';
import { dirname } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Cgroup } from '../../../linux/cgroups/cgroup2.ts';
import { SIGKILL } from '../../../linux/system/signals.ts';
import { refuseUnwritable } from './cgroup-root.ts';

const CONTROLLERS = ['cpu', 'io', 'memory', 'pids'];
const MIB = 1024 * 1024;
/** At this interval it is checked whether the cgroups are empty, in milliseconds. */
const POLL_MS = 10;

/** Shares of CPU time or I/O are relative to each other and to neighboring cgroups, whose default is 100. */
export interface Weights {
  readonly user: number;
  readonly ptys: number;
}

/** Limits what the clients' processes take of the guest. */
export interface WorkloadLimits {
  /** Each of the cgroups has at most this many processes and threads. Null means 40 % of what the kernel allows. */
  readonly maxTasks: number | null;
  /** All together take at most this much memory, in bytes. Null means all but 160 MiB or a sixth, if that is less, and what the kernel keeps free. */
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

/**
 * Returns the memory limit of the workload, in bytes. The rest is reserved for the system and the daemon, and the kernel
 * keeps some free: without that it would meet its own limit first, and kill others after the one that took the memory.
 * Source: Documentation/admin-guide/sysctl/vm.rst.
 */
function workloadMemory(total: number): number {
  const keptFree = 1024 * Number(readFileSync('/proc/sys/vm/min_free_kbytes', 'utf8'));
  return Math.floor(total - Math.min(total / 6, 160 * MIB) - keptFree);
}

/** pids.max takes no larger value. Source: PID_MAX_LIMIT, include/linux/threads.h. */
export const MOST_TASKS = 4_194_304;

/**
 * Returns how many processes and threads each of the cgroups may have. A fork bomb in one leaves some to the other and
 * to the system. Source: proc_sys_kernel(5).
 */
function defaultTasks(): number {
  const limits = ['threads-max', 'pid_max'].map((name) =>
    Number(readFileSync(`/proc/sys/kernel/${name}`, 'utf8')),
  );
  return Math.floor(0.4 * Math.min(...limits));
}

/** Manages the cgroups that the clients' processes run in: `ptys` for terminals, `user` for all others. */
export class WorkloadCgroups implements Disposable {
  /** Both cgroups are null without cgroup v2. */
  readonly user: Cgroup | null;
  readonly ptys: Cgroup | null;
  /** Says whether the memory controller is enabled for the cgroups below. */
  readonly accountsMemory: boolean;
  readonly #limits: WorkloadLimits;

  private constructor(user: Cgroup | null, ptys: Cgroup | null, limits: WorkloadLimits) {
    this.user = user;
    this.ptys = ptys;
    this.#limits = limits;
    // The controller reports the peak memory of each process, and whether the OOM killer ended it.
    const enabled = this.all().map((cgroup) => cgroup.enableControllers(['memory']));
    this.accountsMemory = enabled.every((controllers) => controllers.length > 0);
  }

  /**
   * Creates both below `root`, with the limits that the available controllers support. If `root` is null, there are no
   * cgroups. Throws `failed_precondition` when `root` is not in a writable cgroup v2 hierarchy.
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

  /** Tells whether the number of tasks is limited, which needs the controller `pids`. */
  get limitsTasks(): boolean {
    return this.all().length > 0 && this.all().every((cgroup) => cgroup.has('pids.max'));
  }

  /** Returns both cgroups, or an empty list without cgroups. */
  all(): Cgroup[] {
    return [this.user, this.ptys].filter((cgroup) => cgroup !== null);
  }

  /** Returns the cgroups of single processes. */
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

  /** Resolves when no process is left in them. It polls, because not all of them are children of the daemon. */
  async emptied(): Promise<void> {
    while (this.all().some((cgroup) => cgroup.populated())) await delay(POLL_MS);
  }

  /** Removes what an earlier daemon has left. */
  removeEmptyLeaves(): void {
    for (const cgroup of this.all()) for (const leaf of cgroup.children()) leaf.remove();
  }

  /** Removes empty cgroups. Those of processes that outlive the daemon remain. */
  [Symbol.dispose](): void {
    for (const cgroup of this.all().filter((each) => each.exists())) {
      for (const leaf of cgroup.children()) leaf.remove();
      cgroup.remove();
    }
  }
}

/** Enables controllers from the top down, because a cgroup can enable only those that its parent has enabled for it. */
function enableControllers(root: Cgroup): void {
  const parent = new Cgroup(dirname(root.path));
  if (parent.exists()) enableControllers(parent);
  root.enableControllers(CONTROLLERS);
}

/** Makes the root and sets its limits. A controller's files appear only when the cgroup above has enabled it. */
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

/** Limits the memory of one cgroup. It is called for each, and for the root above both. */
function limitMemory(cgroup: Cgroup, { maxMemory }: WorkloadLimits): Cgroup {
  const memory = String(maxMemory ?? workloadMemory(totalmem()));
  cgroup.setLimit('memory.high', memory);
  cgroup.setLimit('memory.max', memory);
  return cgroup;
}
