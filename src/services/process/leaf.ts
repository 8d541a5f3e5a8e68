import type { Cgroup } from '../../os/cgroup2.ts';
import { groupOf } from '../../os/signals.ts';

/**
 * When leaves that could not be removed are looked at again, in milliseconds: the kernel lets go of a task a moment
 * after it has been reaped, background children when they please. Each look doubles the time to the next.
 */
const FIRST_SWEEP_MS = 10;
const LAST_SWEEP_MS = 10_000;

/** What the kernel tells of a process and all below it; null where it does not. */
export interface TreeUsage {
  readonly peakMemoryBytes: number | null;
  readonly outOfMemory: boolean | null;
}

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

  usage(): TreeUsage {
    if (!this.#leaves.accountsMemory) return { peakMemoryBytes: null, outOfMemory: null };
    const kills = this.#cgroup.outOfMemoryKills();
    return { peakMemoryBytes: this.#cgroup.memoryPeak(), outOfMemory: kills === null ? null : kills > 0 };
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
  readonly #lingering = new Set<Cgroup>();
  #timer: NodeJS.Timeout | null = null;

  constructor(accountsMemory: boolean) {
    this.accountsMemory = accountsMemory;
  }

  /** A leaf below `parent`, to be made by a start. Its name has the daemon's pid: an earlier daemon's may be there. */
  create(parent: Cgroup): Leaf {
    this.#count += 1;
    return new Leaf(parent.child(`${process.pid}-${this.#count}`), this);
  }

  release(cgroup: Cgroup): void {
    if (cgroup.remove()) return;
    this.#lingering.add(cgroup);
    this.#sweepIn(FIRST_SWEEP_MS);
  }

  /** Looks no more: who removes the cgroups around them removes the leaves that are empty. */
  [Symbol.dispose](): void {
    if (this.#timer) clearTimeout(this.#timer);
  }

  #sweepIn(milliseconds: number): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#sweep();
      if (this.#lingering.size > 0) this.#sweepIn(Math.min(milliseconds * 2, LAST_SWEEP_MS));
    }, milliseconds).unref();
  }

  #sweep(): void {
    for (const cgroup of this.#lingering) if (cgroup.remove()) this.#lingering.delete(cgroup);
  }
}
