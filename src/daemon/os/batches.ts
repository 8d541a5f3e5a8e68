import type { Lane } from './lane.ts';
import { native } from './native.ts';

/** The most jobs in one: they run one after the other. */
const MAX_JOBS = 16;

interface Member {
  readonly start: () => Promise<void>;
  readonly reject: (reason: unknown) => void;
}

type Run = <T>(lane: Lane, job: () => T | Promise<T>) => Promise<T>;

/**
 * Jobs of the addon for one directory that begin in one turn of the event loop make one trip to the thread pool, which
 * takes more CPU than a look-up.
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
    const [directory = ''] = lane.keys;
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    const start = async () => {
      try {
        resolve(await job());
      } catch (error) {
        reject(error);
      }
    };
    this.#membersOf(directory, lane).push({ start, reject });
    return promise;
  }

  #membersOf(directory: string, lane: Lane): Member[] {
    const open = this.#open.get(directory);
    if (open && open.members.length < MAX_JOBS) return open.members;
    if (open) void this.#start(open.lane, open.members);
    else if (this.#open.size === 0) setImmediate(this.#startAll);
    const members: Member[] = [];
    this.#open.set(directory, { lane, members });
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

function startTogether(members: readonly Member[]): Promise<unknown> {
  const [only] = members;
  if (only && members.length === 1) return only.start();
  let started: Promise<void>[] = [];
  native.runTogether(() => {
    started = members.map(({ start }) => start());
  });
  return Promise.all(started);
}
