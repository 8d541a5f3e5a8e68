import { isSystemError } from '../../../base/errors.ts';
import { monotonicMs } from '../../../base/monotonic.ts';
import { native } from '../system/native.ts';
import type { Lane } from './lane.ts';

/** A batch has at most this many jobs, which run one after the other. */
const MAX_JOBS = 16;
/** A batch that takes longer, in milliseconds, probably has a job that waits for a lock. The others are taken out. */
const RECALL_MS = 10;
/** A batch that waits for a slot in its lane accepts further jobs for this time, in milliseconds. */
const OPEN_MS = 100;

interface Member {
  readonly start: () => Promise<void>;
  /** It has no effect on a job that was taken out of its batch. */
  readonly reject: (reason: unknown) => void;
}

/** Holds jobs that run together in one trip to the thread pool. */
interface Batch {
  readonly lane: Lane;
  readonly members: Member[];
  /** Other jobs may join until then, by `monotonicMs`, while the batch waits for a slot. They share its time limit. */
  readonly closesAt: number;
  isQueued: boolean;
  isOpen: boolean;
}

type Run = <T>(lane: Lane, job: () => T | Promise<T>) => Promise<T>;

/**
 * Combines jobs of the addon for one directory into one trip to the thread pool, because a trip costs more CPU than a
 * look-up or a small write. It combines jobs that begin in one turn of the event loop, and those that begin while the
 * first ones wait for a slot. docs/decisions/007-lanes.md says why no job waits long for another.
 */
export class JobBatches {
  readonly #run: Run;
  #batches = new Map<string, Batch>();
  #isScheduled = false;

  /** `run` runs a job in a lane. */
  constructor(run: Run) {
    this.#run = run;
  }

  /** Adds a single call of the addon. The promise settles as the job does, or with the error of the lane. */
  add<T>(lane: Lane, job: () => T | Promise<T>): Promise<T> {
    const [directory = '', , changes = directory] = lane.keys;
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    let isRecalled = false;
    const start = async () => {
      try {
        resolve(await job());
      } catch (error) {
        isRecalled = isSystemError(error, 'ECANCELED');
        if (isRecalled) this.#run(lane, job).then(resolve, reject);
        else reject(error);
      }
    };
    const rejectMember = (reason: unknown) => {
      if (!isRecalled) reject(reason);
    };
    this.#membersOf(changes, lane).push({ start, reject: rejectMember });
    return promise;
  }

  #membersOf(key: string, lane: Lane): Member[] {
    const known = this.#batches.get(key);
    if (known && isOpen(known)) return known.members;
    if (known && !known.isQueued) void this.#start(known);
    if (!this.#isScheduled) setImmediate(this.#startAll);
    this.#isScheduled = true;
    const members: Member[] = [];
    const closesAt = monotonicMs() + OPEN_MS;
    this.#batches.set(key, { lane, members, closesAt, isQueued: false, isOpen: true });
    return members;
  }

  readonly #startAll = () => {
    this.#isScheduled = false;
    for (const batch of this.#batches.values()) if (!batch.isQueued) void this.#start(batch);
    // Deleting entries one by one would cost memory: see docs/decisions/014-memory.md.
    this.#batches = new Map([...this.#batches].filter(([, batch]) => isOpen(batch)));
  };

  async #start(batch: Batch): Promise<void> {
    const { lane, members } = batch;
    batch.isQueued = true;
    try {
      await this.#run(lane, () => {
        batch.isOpen = false;
        return startTogether(members);
      });
    } catch (error) {
      for (const { reject } of members) reject(error);
    } finally {
      batch.isOpen = false;
      // This frees the jobs, because the map may keep the batch for a while.
      members.length = 0;
    }
  }
}

function isOpen({ isOpen: mayJoin, members, closesAt }: Batch): boolean {
  return mayJoin && members.length < MAX_JOBS && monotonicMs() < closesAt;
}

/** Starts all jobs of a batch, and resolves when none of them is left in it. */
async function startTogether(members: readonly Member[]): Promise<void> {
  const [only] = members;
  if (only && members.length === 1) return only.start();
  let started: Promise<void>[] = [];
  native.runTogether(() => {
    started = members.map(({ start }) => start());
  });
  const late = setTimeout(() => native.recallWaiting(), RECALL_MS);
  await Promise.all(started);
  clearTimeout(late);
}
