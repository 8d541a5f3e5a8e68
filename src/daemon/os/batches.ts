import { isSystemError } from '../../base/errors.ts';
import type { Lane } from './lane.ts';
import { native } from './native.ts';

/** The most jobs in one: they run one after the other. */
const MAX_JOBS = 16;
/** When a batch has not ended by then, one of its jobs probably waits for a lock: the others are taken from it. */
const RECALL_MS = 10;

interface Member {
  readonly start: () => Promise<void>;
  /** Has no effect on a job that was taken from its batch. */
  readonly reject: (reason: unknown) => void;
}

type Run = <T>(lane: Lane, job: () => T | Promise<T>) => Promise<T>;

/**
 * Jobs of the addon for one directory that begin in one turn of the event loop make one trip to the thread pool, which
 * takes more CPU than a look-up or a small write. None of them waits long for another: see docs/decisions/042-recall.md.
 */
export class Batches {
  readonly #run: Run;
  #open = new Map<string, { readonly lane: Lane; readonly members: Member[] }>();

  /** `run`: runs a job in a lane. */
  constructor(run: Run) {
    this.#run = run;
  }

  /** `job` must be one call of the addon. Settles as it does, or with the error of the lane. */
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
    const open = this.#open.get(key);
    if (open && open.members.length < MAX_JOBS) return open.members;
    if (open) void this.#start(open.lane, open.members);
    else if (this.#open.size === 0) setImmediate(this.#startAll);
    const members: Member[] = [];
    this.#open.set(key, { lane, members });
    return members;
  }

  readonly #startAll = () => {
    const batches = this.#open;
    // Not cleared: see docs/decisions/040-garbage.md.
    this.#open = new Map();
    for (const { lane, members } of batches.values()) void this.#start(lane, members);
  };

  async #start(lane: Lane, members: readonly Member[]): Promise<void> {
    try {
      await this.#run(lane, () => startTogether(members));
    } catch (error) {
      for (const { reject } of members) reject(error);
    }
  }
}

/** Settles when all have ended in this batch. */
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
