import { rmdir } from 'node:fs/promises';
import { isSystemError } from '../../../../base/errors.ts';
import { Cgroup, type CpuTime } from '../../../linux/cgroups/cgroup2.ts';
import { isInGroup, signalGroup } from '../../../linux/system/signals.ts';

/**
 * Leaves are removed for the first time after this delay, in milliseconds. The kernel detaches a task shortly after it
 * has been reaped, and an earlier removal would compete with the next start. The event loop removes at most `AT_ONCE`
 * leaves itself, which is as fast as asking another thread.
 */
const FIRST_MS = 10;
const AT_ONCE = 16;
/**
 * Further attempts follow at intervals from the first to the last of these, in milliseconds. The interval doubles while
 * some leaves are not empty, because background children may stay in a leaf.
 */
const FIRST_SWEEP_MS = 20;
const LAST_SWEEP_MS = 10_000;

/** The kernel's figures for a process and all below it. A figure is null when the kernel does not report it. */
export interface TreeUsage {
  readonly peakMemoryBytes: number | null;
  readonly outOfMemory: boolean | null;
  readonly cpu: CpuTime | null;
  /** How often a limit has refused a process or thread. It is also null if the process has no limits of its own. */
  readonly refusedTasks: number | null;
}

const UNKNOWN: TreeUsage = { peakMemoryBytes: null, outOfMemory: null, cpu: null, refusedTasks: null };
/** The name of a cgroup with limits of its own ends so, and later programs of this process find them by it. */
const LIMITED = '-limited';

/** Manages the cgroup of one process and all its descendants, in whatever session. */
export class Leaf {
  readonly #cgroup: Cgroup;
  readonly #leaves: Leaves;

  constructor(cgroup: Cgroup, leaves: Leaves) {
    this.#cgroup = cgroup;
    this.#leaves = leaves;
  }

  /** Returns the path of the cgroup, which exists once a process has been started in it. */
  get path(): string {
    return this.#cgroup.path;
  }

  /** Tells whether a process is in it, rather than in another cgroup. */
  has(pid: number): boolean {
    return this.#cgroup.processes().includes(pid);
  }

  /** Signals every process in it. */
  signal(signal: number): void {
    this.#cgroup.signal(signal);
  }

  /** Signals a process group if a process of it is in this cgroup, because its id may be that of another group by now. */
  signalGroup(group: number, signal: number): void {
    if (!signalGroup(group, 0)) return;
    if (this.#cgroup.processes().some((pid) => isInGroup(pid, group))) signalGroup(group, signal);
  }

  /**
   * Returns the figures. `withCpu` asks for the CPU time, too, which only the parent of a process is told otherwise.
   * Figures that cannot be read, for example without a free descriptor, are null, because the end event must not fail.
   */
  usage(withCpu: boolean): TreeUsage {
    try {
      const cpu = withCpu ? this.#cgroup.cpuTime() : null;
      const isLimited = this.path.endsWith(LIMITED);
      const refusedTasks = isLimited ? this.#cgroup.figure('pids.events', /^max (\d+)$/m) : null;
      if (!this.#leaves.accountsMemory) return { ...UNKNOWN, cpu, refusedTasks };
      const kills = this.#cgroup.outOfMemoryKills();
      const outOfMemory = kills === null ? null : kills > 0;
      return { peakMemoryBytes: this.#cgroup.memoryPeak(), outOfMemory, cpu, refusedTasks };
    } catch (error) {
      if (!isSystemError(error)) throw error;
      return UNKNOWN;
    }
  }

  /** Removes the cgroup once the last process in it has ended. */
  release(): void {
    this.#leaves.release(this.#cgroup);
  }
}

/** A later program of this process needs this state. */
export interface LeavesState {
  readonly count: number;
  readonly released: readonly string[];
}

/** Names leaf cgroups, and removes each when it is empty. */
export class Leaves implements Disposable {
  readonly accountsMemory: boolean;
  #count = 0;
  /** These wait for the first attempt to remove them. */
  readonly #fresh: Cgroup[] = [];
  /** These wait for further attempts. */
  readonly #released = new Set<string>();
  #isDisposed = false;
  #timer: NodeJS.Timeout | null = null;
  /** The scheduled sweep has this delay, in milliseconds. */
  #nextMs = Number.POSITIVE_INFINITY;

  constructor(accountsMemory: boolean) {
    this.accountsMemory = accountsMemory;
  }

  /** Names a leaf below `parent`, which a start creates. The daemon's pid tells it from leaves of earlier daemons. */
  create(parent: Cgroup, isLimited: boolean): Leaf {
    this.#count += 1;
    return new Leaf(parent.child(`${process.pid}-${this.#count}${isLimited ? LIMITED : ''}`), this);
  }

  existing(path: string): Leaf {
    return new Leaf(new Cgroup(path), this);
  }

  /** Returns the number of the last leaf, and the paths of those that are released and not removed. */
  get state(): LeavesState {
    return { count: this.#count, released: [...this.#released] };
  }

  /** Continues for an earlier program of this process. The launcher releases leaves in which no process runs. */
  continueFrom({ count }: LeavesState): void {
    this.#count = count;
  }

  release(cgroup: Cgroup): void {
    this.#fresh.push(cgroup);
    if (this.#fresh.length === 1) setTimeout(() => this.#removeFresh(), FIRST_MS).unref();
  }

  /** Stops sweeping. `WorkloadCgroups` removes the remaining empty leaves. */
  [Symbol.dispose](): void {
    this.#isDisposed = true;
    if (this.#timer) clearTimeout(this.#timer);
  }

  #removeFresh(): void {
    for (const cgroup of this.#fresh.splice(0, AT_ONCE))
      if (!isRemoved(cgroup)) this.#released.add(cgroup.path);
    for (const cgroup of this.#fresh.splice(0)) this.#released.add(cgroup.path);
    const isDue = this.#released.size > 0 && this.#nextMs > FIRST_SWEEP_MS;
    if (isDue && !this.#isDisposed) this.#sweepIn(FIRST_SWEEP_MS);
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
    const keepUnlessGone = (path: string) => (error: unknown) => {
      if (!isSystemError(error, 'ENOENT')) this.#released.add(path);
    };
    await Promise.all(paths.map((path) => rmdir(path).catch(keepUnlessGone(path))));
    if (this.#released.size > 0 && this.#nextMs > next && !this.#isDisposed) this.#sweepIn(next);
  }
}

function isRemoved(cgroup: Cgroup): boolean {
  try {
    return cgroup.remove();
  } catch (error) {
    if (!isSystemError(error)) throw error;
    return false;
  }
}
