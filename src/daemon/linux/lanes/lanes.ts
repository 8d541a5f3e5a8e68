import { EnvdError } from '../../../base/errors.ts';
import { native } from '../system/native.ts';
import { JobBatches } from './batches.ts';
import { entering, type Lane, limitOf } from './lane.ts';

export interface LaneOptions {
  /** A request to a file system may take this long, in milliseconds. */
  readonly limitMs: number;
  readonly threads: number;
}

/** Says that a file system did not answer in time. It looks like a system error, so that `explain` adds the path. */
export class NoAnswer extends Error {
  readonly code = 'ETIMEDOUT';
  readonly errno = -110;
  readonly syscall = 'wait';
}

/** A job that reads or copies all of something may take this many times as long. */
const LONG = 6;
/** At most this many jobs wait. */
const MAX_WAITING = 4096;
/** At most this many keys are kept. Only some tens of them have running jobs. */
const MAX_KEYS = 1024;
/** A path may lead through at most this many mounts that may not answer. */
export const MAX_MOUNTS = 8;

interface Waiting {
  readonly lane: Lane;
  readonly start: () => void;
}

/**
 * Limits the jobs in the thread pool that wait for files of the guest. So a file system that does not answer, or a
 * process that keeps a file locked, takes few threads and leaves some for everyone else. A job gives its slot back when
 * it has really ended, not when its caller has given up.
 *
 * These limits apply to concurrent jobs: 2 for each mount that may not answer; 3/16 of the threads for all FUSE mounts,
 * which users of the guest can create; 3/16 for all others, such as NFS; 3/16 for jobs that wait for inode locks, and
 * for removals; 3/16 for names in one directory, of which two may change it; 6/16 for everything below /home/user and
 * the like; 13/16 in total.
 */
export class Lanes {
  readonly limitMs: number;
  readonly #threads: number;
  readonly #most: number;
  readonly #batches = new JobBatches((lane, job) => this.run(lane, job));
  #running = new Map<string, number>();
  readonly #waiting = new Set<Waiting>();
  #total = 0;

  constructor({ limitMs, threads }: LaneOptions) {
    this.limitMs = limitMs;
    this.#threads = threads;
    this.#most = Math.max(1, threads - limitOf('', threads));
  }

  /** Tells whether a job is running. */
  get isBusy(): boolean {
    return this.#total > 0;
  }

  /**
   * Runs a job that looks up a path, and returns the lane of the file found. It enters a mount that may not answer only
   * when the job has a slot in the mount's lane. Throws as `run` does.
   */
  async find<T>(
    job: () => T | Promise<T>,
    { discard, long = false, base, ask, isBatched = false }: FindOptions<T>,
  ): Promise<{ readonly value: T; readonly lane: Lane }> {
    for (let lane = base; ; ) {
      try {
        if (ask && lane.mounts.length > 0) await this.#ask(lane, ask);
        const isAlone = !isBatched || lane.mounts.length > 0;
        const work = isAlone ? this.run(lane, job, { discard, long }) : this.runBatched(lane, job);
        return { value: await work, lane };
      } catch (error) {
        const mount = mountOf(error);
        if (mount === null || lane.mounts.length === MAX_MOUNTS || lane.mounts.includes(mount)) throw error;
        lane = entering(lane, mount);
      }
    }
  }

  /**
   * Runs a job in a lane. Throws `NoAnswer` when the job does not begin, or does not end, within the lane's patience,
   * and passes a later result to `discard`. `job` must start its call of the addon at once. Throws `resource_exhausted`
   * when too many jobs wait.
   */
  async run<T>(
    lane: Lane,
    job: () => T | Promise<T>,
    { discard, long = false }: RunOptions<T> = {},
  ): Promise<T> {
    const { patience } = lane;
    const limitMs = patience === 'long' ? this.limitMs * LONG : this.limitMs;
    if (!this.#take(lane)) await this.#turn(lane, patience === 'endless' ? null : limitMs);
    const work = this.#perform(lane, job);
    if (patience === 'endless') return work;
    return this.inTime(work, discard, long ? this.limitMs * LONG : limitMs);
  }

  /**
   * Runs a call of the addon on a name in a directory, combined with others that begin in this turn of the event loop.
   * The calls run one after the other, so each must wait for nothing but the directory.
   */
  runBatched<T>(lane: Lane, job: () => T | Promise<T>): Promise<T> {
    return this.#batches.add(lane, job);
  }

  /** Runs a job that must be done eventually, such as close(2), however long it waits. */
  async runAtLast(lane: Lane, job: () => Promise<unknown>): Promise<void> {
    if (!this.#take(lane)) await this.#queue(lane, null);
    await this.#perform(lane, job);
  }

  /** Settles as `work` does, or throws `NoAnswer` when that takes too long. A later result is passed to `discard`. */
  inTime<T>(work: Promise<T>, discard: (late: T) => void = () => {}, limitMs = this.limitMs): Promise<T> {
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    let settle: (value: T) => void = resolve;
    const giveUp = () => {
      settle = discard;
      reject(new NoAnswer('no answer'));
    };
    // When the process could not run for long, what the pool has done meanwhile is looked at between timers and immediates.
    const timer = setTimeout(() => setImmediate(giveUp), limitMs);
    work.then((value) => settle(value), reject).finally(() => clearTimeout(timer));
    return promise;
  }

  /** Throws only if the file system does not answer, because the job itself meets all other errors again. */
  async #ask(lane: Lane, question: () => Promise<unknown>): Promise<void> {
    await this.run(lane, question).catch((error: unknown) => {
      if (error instanceof NoAnswer || error instanceof EnvdError) throw error;
    });
  }

  async #turn(lane: Lane, limitMs: number | null): Promise<void> {
    if (this.#waiting.size >= MAX_WAITING) {
      throw new EnvdError('resource_exhausted', 'too many calls wait for file systems: try again later');
    }
    await this.#queue(lane, limitMs);
  }

  #queue(lane: Lane, limitMs: number | null): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const waiting: Waiting = { lane, start: resolve };
    this.#waiting.add(waiting);
    if (limitMs === null) return promise;
    const giveUp = () => {
      if (this.#waiting.delete(waiting)) reject(new NoAnswer('no place'));
    };
    const timer = setTimeout(() => setImmediate(giveUp), limitMs);
    return promise.finally(() => clearTimeout(timer));
  }

  #take(lane: Lane): boolean {
    if (!this.#hasRoom(lane)) return false;
    this.#add(lane, 1);
    return true;
  }

  async #perform<T>(lane: Lane, job: () => T | Promise<T>): Promise<T> {
    try {
      return await begin(lane, job);
    } finally {
      this.#add(lane, -1);
      if (this.#waiting.size > 0) this.#startWaiting();
    }
  }

  #hasRoom({ keys }: Lane): boolean {
    return this.#total < this.#most && keys.every((key) => this.#count(key) < limitOf(key, this.#threads));
  }

  #count(key: string): number {
    return this.#running.get(key) ?? 0;
  }

  #add({ keys }: Lane, change: number): void {
    this.#total += change;
    for (const key of keys) this.#running.set(key, this.#count(key) + change);
    // Deleting entries one by one would cost memory: see docs/decisions/014-memory.md.
    if (this.#running.size > MAX_KEYS)
      this.#running = new Map([...this.#running].filter(([, count]) => count > 0));
  }

  /** Starts waiting jobs in order. Jobs of a full lane do not delay others. */
  #startWaiting(): void {
    for (const waiting of this.#waiting) {
      if (this.#total >= this.#most) return;
      if (!this.#take(waiting.lane)) continue;
      this.#waiting.delete(waiting);
      waiting.start();
    }
  }
}

export interface RunOptions<T> {
  /** Releases the result of a job whose caller has given up. */
  readonly discard?: ((late: T) => void) | undefined;
  /** Says that the job reads or copies all of something. */
  readonly long?: boolean;
}

export interface FindOptions<T> extends RunOptions<T> {
  /** The job begins in this lane, which is that of its directory. */
  readonly base: Lane;
  /** Says that `runBatched` may run the job. */
  readonly isBatched?: boolean;
  /** A long job has this short one, which first finds out whether the file system answers at all. */
  readonly ask?: () => Promise<unknown>;
}

/** Returns the mount that a look-up was not allowed to enter, or null. */
function mountOf(error: unknown): number | null {
  const mount = error instanceof Error && 'mount' in error ? error.mount : null;
  return typeof mount === 'number' && mount > 0 ? mount : null;
}

/** Calls the job with permission to enter the mounts of its lane. */
function begin<T>({ mounts }: Lane, job: () => T | Promise<T>): T | Promise<T> {
  if (mounts.length === 0) return job();
  native.allowMounts(Uint32Array.from(mounts));
  try {
    return job();
  } finally {
    native.allowMounts(new Uint32Array());
  }
}
