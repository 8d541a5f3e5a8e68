import { totalmem } from 'node:os';
import { dirname } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { EnvdError, isSystemError } from '../../../base/errors.ts';
import { Cgroup } from '../../os/cgroup2.ts';
import { SIGKILL } from '../../os/signals.ts';

const CONTROLLERS = ['cpu', 'io', 'memory'];
const MIB = 1024 * 1024;
/** How often it is looked whether they are empty, in milliseconds. */
const POLL_MS = 10;

/** Shares of the guest under contention: terminals answer before everything else of the user's. */
const WEIGHTS = {
  user: { 'cpu.weight': '50', 'io.weight': 'default 10' },
  ptys: { 'cpu.weight': '200', 'io.weight': 'default 50' },
};

/** Bytes that the workload may have: the rest keeps the system and the daemon alive. @internal */
export function workloadMemory(total: number): number {
  return Math.floor(total - Math.min(total / 8, 128 * MIB));
}

/** The cgroups that the clients' processes run in: `ptys` for terminals, `user` for all others. */
export class WorkloadCgroups implements Disposable {
  /** Null without cgroup v2, as is `ptys`. */
  readonly user: Cgroup | null;
  readonly ptys: Cgroup | null;
  /** Whether the kernel keeps account of the memory of each cgroup below. */
  readonly accountsMemory: boolean;

  private constructor(user: Cgroup | null, ptys: Cgroup | null) {
    this.user = user;
    this.ptys = ptys;
    // For the figures of each process: what it used, and whether the kernel killed it for memory.
    const enabled = this.all().map((cgroup) => cgroup.enableControllers(['memory']));
    this.accountsMemory = enabled.every((controllers) => controllers.length > 0);
  }

  /**
   * Makes both below `root`, with what limits the available controllers allow; null stands for "without cgroups".
   * Throws `failed_precondition` when `root` is not in a writable cgroup v2 hierarchy.
   */
  static create(root: string | null): WorkloadCgroups {
    if (root === null) return new WorkloadCgroups(null, null);
    try {
      enableControllers(Cgroup.create(root));
      return new WorkloadCgroups(
        limited(Cgroup.create(`${root}/user`), WEIGHTS.user),
        limited(Cgroup.create(`${root}/ptys`), WEIGHTS.ptys),
      );
    } catch (error) {
      if (!isSystemError(error, 'EROFS', 'EACCES', 'EPERM')) throw error;
      throw new EnvdError('failed_precondition', `cgroup root is not writable: '${root}'`, { cause: error });
    }
  }

  /** Makes one of them again that somebody in the guest has removed. */
  restore(kind: 'user' | 'ptys'): void {
    const cgroup = this[kind];
    if (!cgroup) return;
    enableControllers(Cgroup.create(dirname(cgroup.path)));
    limited(Cgroup.create(cgroup.path), WEIGHTS[kind]).enableControllers(['memory']);
  }

  /** Both, or none. */
  all(): Cgroup[] {
    return [this.user, this.ptys].filter((cgroup) => cgroup !== null);
  }

  /** Signals every process in them, whoever started it and whatever session it made its own. */
  signal(signal: number): void {
    for (const cgroup of this.all().filter((each) => each.exists())) {
      if (signal === SIGKILL) cgroup.kill();
      else for (const leaf of cgroup.children()) leaf.signal(signal);
    }
  }

  /** Settles when no process is left in them: not all are the daemon's own to reap. */
  async emptied(): Promise<void> {
    while (this.all().some((cgroup) => cgroup.populated())) await delay(POLL_MS);
  }

  /** Removes those that are empty; processes that outlive the daemon keep theirs. */
  [Symbol.dispose](): void {
    for (const cgroup of this.all().filter((each) => each.exists())) {
      for (const leaf of cgroup.children()) leaf.remove();
      cgroup.remove();
    }
  }
}

/** From the top of the hierarchy down: a cgroup can only hand on what its parent hands to it. */
function enableControllers(root: Cgroup): void {
  const parent = new Cgroup(dirname(root.path));
  if (parent.exists()) enableControllers(parent);
  root.enableControllers(CONTROLLERS);
}

function limited(cgroup: Cgroup, weights: Readonly<Record<string, string>>): Cgroup {
  const memory = String(workloadMemory(totalmem()));
  const limits = { 'memory.high': memory, 'memory.max': memory, ...weights };
  for (const [file, value] of Object.entries(limits)) cgroup.setLimit(file, value);
  // Leaves of a daemon that has ended, whose processes have ended since.
  for (const leaf of cgroup.children()) leaf.remove();
  return cgroup;
}
