import {
  accessSync,
  chmodSync,
  closeSync,
  constants,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  statfsSync,
  writeSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { EnvdError, isSystemError } from '../../../base/errors.ts';
import { native } from '../system/native.ts';
import { SIGKILL, signalProcess } from '../system/signals.ts';

/** The type of the file system, `CGROUP2_SUPER_MAGIC`. Source: statfs(2). */
const CGROUP2_MAGIC = 0x63677270;
/** Whoever can list a directory can keep its lock, for which starts and removals wait: see docs/decisions/007-lanes.md. */
export const CGROUP_MODE = 0o711;

/** Returns whether `error` means that the cgroup was removed: before its file was opened (ENOENT) or after that (ENODEV). */
export function hasVanished(error: unknown): boolean {
  return isSystemError(error, 'ENOENT', 'ENODEV');
}

export interface CpuTime {
  readonly userMicros: number;
  readonly systemMicros: number;
}

/**
 * A directory of the cgroup v2 hierarchy. All methods are synchronous, because control files do not block for long. Source:
 * Documentation/admin-guide/cgroup-v2.rst.
 */
export class Cgroup {
  readonly path: string;

  constructor(path: string) {
    this.path = path;
  }

  /**
   * Creates the cgroup and its missing parents, unless it exists and can be written. Others cannot list it. Throws `failed_precondition` outside of
   * cgroup v2, and the errors of mkdir(2) and access(2).
   */
  static create(path: string): Cgroup {
    if (!isOnCgroup2(path))
      throw new EnvdError('failed_precondition', `not a cgroup v2 directory: '${path}'`);
    makeDirectory(path);
    // Another user or an earlier daemon may have made it.
    accessSync(path, constants.W_OK);
    chmodSync(path, CGROUP_MODE);
    return new Cgroup(path);
  }

  exists(): boolean {
    return this.has('cgroup.controllers');
  }

  has(file: string): boolean {
    return existsSync(join(this.path, file));
  }

  child(name: string): Cgroup {
    return new Cgroup(join(this.path, name));
  }

  /** Returns the child cgroups; none when the cgroup does not exist any more. */
  children(): Cgroup[] {
    try {
      const entries = readdirSync(this.path, { withFileTypes: true });
      return entries.filter((entry) => entry.isDirectory()).map(({ name }) => this.child(name));
    } catch (error) {
      if (hasVanished(error)) return [];
      throw error;
    }
  }

  /** Returns whether the kernel can freeze the cgroup, which Linux can since 5.2. */
  isFreezable(): boolean {
    return this.has('cgroup.freeze');
  }

  /** Requests that every process in it and below be frozen, which the kernel does asynchronously. */
  freeze(): void {
    native.setCgroupFrozen(this.path, true);
  }

  thaw(): void {
    native.setCgroupFrozen(this.path, false);
  }

  /** Returns whether all its processes are frozen, by its own or an ancestor's request; true when it has none. */
  isFrozen(): boolean {
    return this.#read('cgroup.events').includes('frozen 1');
  }

  /** Returns whether a freeze of this cgroup itself was requested, rather than of an ancestor. */
  freezeRequested(): boolean {
    return this.#read('cgroup.freeze').startsWith('1');
  }

  /**
   * Sends a signal to every process in it. SIGKILL also reaches child cgroups, frozen processes, and those that fork(2) makes
   * meanwhile, because it is sent through cgroup.kill.
   */
  signal(signal: number): void {
    if (signal === SIGKILL) this.kill();
    else for (const pid of this.processes()) signalProcess(pid, signal);
  }

  /** Kills every process in it and below, including frozen ones. Does nothing when it does not exist any more. */
  kill(): void {
    try {
      // Linux before 5.14 has no such file.
      if (this.has('cgroup.kill') || !this.exists()) this.#write('cgroup.kill', '1');
      else this.killEach();
    } catch (error) {
      if (!hasVanished(error)) throw error;
    }
  }

  /**
   * Kills the processes one by one. The cgroup is frozen meanwhile so that nothing forks; a child that was made before is
   * frozen with its parent.
   */
  killEach(): void {
    const wasFrozen = this.freezeRequested();
    this.freeze();
    using _ = wasFrozen ? null : { [Symbol.dispose]: () => this.thaw() };
    const killed = new Set<number>();
    const next = () => this.#processesBelow().filter((pid) => !killed.has(pid));
    for (let pids = next(); pids.length > 0; pids = next()) {
      for (const pid of pids) signalProcess(pid, SIGKILL);
      for (const pid of pids) killed.add(pid);
    }
  }

  #processesBelow(): number[] {
    return [...this.processes(), ...this.children().flatMap((child) => child.#processesBelow())];
  }

  /**
   * Returns the ids of the processes in it, without those in child cgroups; none when it does not exist any more. Processes
   * outside of the daemon's pid namespace are left out. The kernel lists them as 0.
   */
  processes(): number[] {
    return words(this.#readIfPresent('cgroup.procs') ?? '').flatMap((pid) => Math.max(0, +pid) || []);
  }

  /** Returns whether any process is in it or below; false when it does not exist. */
  populated(): boolean {
    return /^populated 1$/m.test(this.#readIfPresent('cgroup.events') ?? '');
  }

  /** Returns the peak memory usage in bytes; null without the memory controller, or on a kernel before 5.19. */
  memoryPeak(): number | null {
    return this.figure('memory.peak', /^(\d+)$/m);
  }

  /** Returns the number of out-of-memory kills in it and below; null without the memory controller. */
  outOfMemoryKills(): number | null {
    return this.figure('memory.events', /^oom_kill (\d+)$/m);
  }

  /** Returns the CPU time of all processes that were ever in it and below; null when it does not exist. */
  cpuTime(): CpuTime | null {
    const userMicros = this.figure('cpu.stat', /^user_usec (\d+)$/m);
    const systemMicros = this.figure('cpu.stat', /^system_usec (\d+)$/m);
    return userMicros === null || systemMicros === null ? null : { userMicros, systemMicros };
  }

  /** Writes a control file; returns false when it does not exist because its controller is not available. */
  setLimit(file: string, value: string): boolean {
    try {
      this.#write(file, value);
      return true;
    } catch (error) {
      if (isSystemError(error, 'ENOENT')) return false;
      throw error;
    }
  }

  /** Returns the controllers that it can enable for its children. */
  controllers(): string[] {
    return words(this.#read('cgroup.controllers'));
  }

  /** Enables those of `controllers` that are available for its children; returns those that are enabled then. */
  enableControllers(controllers: readonly string[]): string[] {
    const available = this.controllers();
    const wanted = controllers.filter((name) => available.includes(name));
    for (const name of wanted) {
      try {
        this.#write('cgroup.subtree_control', `+${name}`);
      } catch (error) {
        // It has processes (EBUSY), it is threaded (EOPNOTSUPP), or the controller was mounted as v1 (ENOENT).
        if (!isSystemError(error, 'EBUSY', 'EOPNOTSUPP', 'ENOENT')) throw error;
      }
    }
    const enabled = words(this.#read('cgroup.subtree_control'));
    return controllers.filter((name) => enabled.includes(name));
  }

  /** Removes it; returns false if it still has processes or children. */
  remove(): boolean {
    try {
      rmdirSync(this.path);
    } catch (error) {
      if (isSystemError(error, 'EBUSY')) return false;
      if (!isSystemError(error, 'ENOENT')) throw error;
    }
    return true;
  }

  /** Returns the number that `form` finds in a file; null when the kernel does not report it. */
  figure(file: string, form: RegExp): number | null {
    const digits = form.exec(this.#readIfPresent(file) ?? '')?.[1];
    return digits === undefined ? null : Number(digits);
  }

  #readIfPresent(file: string): string | null {
    try {
      return this.#read(file);
    } catch (error) {
      // A kernel that was started without pressure stall information has its files, and refuses to open them.
      if (hasVanished(error) || isSystemError(error, 'EOPNOTSUPP', 'ENOTSUP')) return null;
      throw error;
    }
  }

  #read(file: string): string {
    return readFileSync(`${this.path}/${file}`, 'utf8');
  }

  /** Writes a control file, opened for writing only, because some cannot be read. Throws ENOENT when the file is missing. */
  #write(file: string, value: string): void {
    const descriptor = openSync(`${this.path}/${file}`, constants.O_WRONLY);
    try {
      writeSync(descriptor, value);
    } finally {
      closeSync(descriptor);
    }
  }
}

function words(text: string): string[] {
  return text.split(/\s+/).filter(Boolean);
}

/** Creates a directory and its missing parents. Node's recursive mkdir would report ENOENT on a read-only file system. */
function makeDirectory(path: string): void {
  try {
    mkdirSync(path, CGROUP_MODE);
  } catch (error) {
    if (isSystemError(error, 'EEXIST')) return;
    if (!isSystemError(error, 'ENOENT') || dirname(path) === path) throw error;
    makeDirectory(dirname(path));
    makeDirectory(path);
  }
}

/** Returns whether `path`, or its nearest ancestor that exists, is on cgroup v2. */
function isOnCgroup2(path: string): boolean {
  try {
    return statfsSync(path).type === CGROUP2_MAGIC;
  } catch (error) {
    if (isSystemError(error, 'ENOENT') && dirname(path) !== path) return isOnCgroup2(dirname(path));
    throw error;
  }
}
