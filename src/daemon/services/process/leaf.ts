import { isSystemError } from '../../../base/errors.ts';
import { type Cgroup, removeCgroups } from '../../os/cgroup2.ts';
import { groupOf } from '../../os/signals.ts';

/**
 * First and last interval between removals of leaves, in milliseconds; it doubles while some are not empty. Leaves are
 * removed in batches, because each removal takes kernel time that would compete with the next start. A leaf may stay
 * populated: the kernel detaches a task shortly after it has been reaped, and background children may run on.
 */
const FIRST_SWEEP_MS = 10;
const LAST_SWEEP_MS = 10_000;

/** Kernel's figures for a process and all below it; null when not reported. */
export interface TreeUsage {
  readonly peakMemoryBytes: number | null;
  readonly outOfMemory: boolean | null;
}

const UNKNOWN: TreeUsage = { peakMemoryBytes: null, outOfMemory: null };

/** The cgroup of one process and all its descendants, in whatever session. */
export class Leaf {
  readonly #cgroup: Cgroup;
  readonly #leaves: Leaves;

  constructor(cgroup: Cgroup, leaves: Leaves) {
    this.#cgroup = cgroup;
    this.#leaves = leaves;
  }

  /** Its path; the directory exists once a process has been started in it. */
  get path(): string {
    return this.#cgroup.path;
  }

  /** Signals every process in it. */
  signal(signal: number): void {
    this.#cgroup.signal(signal);
  }

  /** Whether it contains a process of that process group. */
  holdsGroup(group: number): boolean {
    return this.#cgroup.processes().some((pid) => groupOf(pid) === group);
  }

  /** Figures that cannot be read (for example without a free descriptor) are null: the end event must not fail. */
  usage(): TreeUsage {
    if (!this.#leaves.accountsMemory) return UNKNOWN;
    try {
      const kills = this.#cgroup.outOfMemoryKills();
      return { peakMemoryBytes: this.#cgroup.memoryPeak(), outOfMemory: kills === null ? null : kills > 0 };
    } catch (error) {
      if (!isSystemError(error)) throw error;
      return UNKNOWN;
    }
  }

  /** Removes it once the last process in it has ended. */
  release(): void {
    this.#leaves.release(this.#cgroup);
  }
}

/** Names leaf cgroups, and removes each when it is empty. */
export class Leaves implements Disposable {
  readonly accountsMemory: boolean;
  #count = 0;
  readonly #released = new Set<string>();
  #isDisposed = false;
  #timer: NodeJS.Timeout | null = null;
  /** Delay of the scheduled sweep, in milliseconds. */
  #nextMs = Number.POSITIVE_INFINITY;

  constructor(accountsMemory: boolean) {
    this.accountsMemory = accountsMemory;
  }

  /**
   * A leaf below `parent`, to be created by a start. Its name has the daemon's pid, unlike leaves of earlier daemons.
   */
  create(parent: Cgroup): Leaf {
    this.#count += 1;
    return new Leaf(parent.child(`${process.pid}-${this.#count}`), this);
  }

  release(cgroup: Cgroup): void {
    this.#released.add(cgroup.path);
    if (this.#nextMs > FIRST_SWEEP_MS) this.#sweepIn(FIRST_SWEEP_MS);
  }

  /** Stops sweeping; `WorkloadCgroups` removes the remaining empty leaves. */
  [Symbol.dispose](): void {
    this.#isDisposed = true;
    if (this.#timer) clearTimeout(this.#timer);
  }

  #sweepIn(milliseconds: number): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#nextMs = milliseconds;
    this.#timer = setTimeout(() => void this.#sweep(), milliseconds).unref();
  }

  async #sweep(): Promise<void> {
    const next = Math.min(this.#nextMs * 2, LAST_SWEEP_MS);
    this.#nextMs = Number.POSITIVE_INFINITY;
    const paths = [...this.#released];
    this.#released.clear();
    const left = await removeCgroups(paths).catch(() => paths);
    for (const path of left) this.#released.add(path);
    if (left.length > 0 && this.#nextMs > next && !this.#isDisposed) this.#sweepIn(next);
  }
}
