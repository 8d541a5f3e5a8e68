import { isSystemError } from '../../../base/errors.ts';
import { type Cgroup, removeCgroups } from '../../os/cgroup2.ts';
import { groupOf } from '../../os/signals.ts';

/**
 * When leaves are removed, in milliseconds: several at a time, since the kernel's work on each would compete with the
 * next start. It lets go of a task a moment after that has been reaped, background children go when they please: each
 * look doubles the time to the next.
 */
const FIRST_SWEEP_MS = 10;
const LAST_SWEEP_MS = 10_000;

/** What the kernel tells of a process and all below it; null where it does not. */
export interface TreeUsage {
  readonly peakMemoryBytes: number | null;
  readonly outOfMemory: boolean | null;
}

const UNKNOWN: TreeUsage = { peakMemoryBytes: null, outOfMemory: null };

/** The cgroup of one process and of everything below it, whatever sessions those make their own. */
export class Leaf {
  readonly #cgroup: Cgroup;
  readonly #leaves: Leaves;

  constructor(cgroup: Cgroup, leaves: Leaves) {
    this.#cgroup = cgroup;
    this.#leaves = leaves;
  }

  /** Where it is, once a process has been started in it. */
  get path(): string {
    return this.#cgroup.path;
  }

  /** Signals every process in it. */
  signal(signal: number): void {
    this.#cgroup.signal(signal);
  }

  /** Whether a process of that group is in it. */
  holdsGroup(group: number): boolean {
    return this.#cgroup.processes().some((pid) => groupOf(pid) === group);
  }

  /** What cannot be read, as when the daemon has no descriptor left, is not known: the end is told all the same. */
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

  /** Removes it, as soon as the last process in it has gone. */
  release(): void {
    this.#leaves.release(this.#cgroup);
  }
}

/** Names leaves, and removes each when it is empty. */
export class Leaves implements Disposable {
  readonly accountsMemory: boolean;
  #count = 0;
  readonly #released = new Set<string>();
  #isDisposed = false;
  #timer: NodeJS.Timeout | null = null;
  /** How long from its start to the sweep that is to come, in milliseconds. */
  #nextMs = Number.POSITIVE_INFINITY;

  constructor(accountsMemory: boolean) {
    this.accountsMemory = accountsMemory;
  }

  /** A leaf below `parent`, to be made by a start. Its name has the daemon's pid: an earlier daemon's may be there. */
  create(parent: Cgroup): Leaf {
    this.#count += 1;
    return new Leaf(parent.child(`${process.pid}-${this.#count}`), this);
  }

  release(cgroup: Cgroup): void {
    this.#released.add(cgroup.path);
    if (this.#nextMs > FIRST_SWEEP_MS) this.#sweepIn(FIRST_SWEEP_MS);
  }

  /** Looks no more: who removes the cgroups around them removes the leaves that are empty. */
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
