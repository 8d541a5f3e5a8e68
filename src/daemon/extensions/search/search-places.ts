import { onAbort } from '../../../base/abort.ts';
import { EnvdError } from '../../../base/errors.ts';
import { monotonicMs } from '../../../base/monotonic.ts';

/** This many searches run at the same time, because each is a process with up to about 200 MiB. */
const MAX_RUNNING = 4;
const MAX_WAITING = 256;
/** A search that has run for this time, in milliseconds, may be ended when another one waits. */
const UNDISTURBED_MS = 5000;
/**
 * This many processes of a user, and of all users, may outlive their searches. They hold no place, because a file system that
 * does not answer can delay their ends for ever.
 */
const MAX_LEFT_OF_USER = 8;
const MAX_LEFT = 32;

/** A place for a search of a user. */
export interface SearchPlace {
  readonly uid: number;
  /** Aborts when the search must end, because it has run for long and others wait. */
  readonly ended: AbortSignal;
  /** From now on the search is not ended because others wait. */
  keep(): void;
  /** Gives the place back. The process of the search may still be there, until it calls `left`. */
  leave(): void;
  /** The process has ended, or was not started. */
  left(): void;
}

interface Waiter {
  readonly uid: number;
  readonly resolve: (place: SearchPlace) => void;
  readonly reject: (reason: unknown) => void;
}

/** Limits the searches of all clients. Each user has an equal share; further searches wait. */
export class SearchPlaces {
  readonly #running = new Set<RunningSearch>();
  readonly #leaving = new Set<RunningSearch>();
  readonly #waiting = new Set<Waiter>();

  /** True if a search waits for a place. */
  get isWanted(): boolean {
    return this.#waiting.size > 0;
  }

  /** Waits for a place. Throws `resource_exhausted`, and the reason of the signal. */
  async enter(uid: number, signal: AbortSignal): Promise<SearchPlace> {
    signal.throwIfAborted();
    this.#refuseIfLeft(uid);
    const { promise, resolve, reject } = Promise.withResolvers<SearchPlace>();
    const waiter = { uid, resolve, reject };
    this.#waiting.add(waiter);
    const removeListener = onAbort(signal, () => {
      if (this.#waiting.delete(waiter)) reject(signal.reason);
    });
    this.#distribute();
    if (this.#waiting.size > MAX_WAITING) this.#refuseOne();
    return promise.finally(removeListener);
  }

  #refuseIfLeft(uid: number): void {
    const ofUser = sharesOf(this.#leaving).get(uid) ?? 0;
    if (ofUser < MAX_LEFT_OF_USER && this.#leaving.size < MAX_LEFT) return;
    const message = `${this.#leaving.size} earlier searches have not ended, because a file system does not answer: try again later`;
    throw new EnvdError('resource_exhausted', message);
  }

  /** Gives free places to those who wait. If there is none, ends a search that has run for long. */
  #distribute(): void {
    for (let next = this.#next(); next; next = this.#next()) {
      if (this.#running.size >= MAX_RUNNING) {
        this.#victimFor(next.uid)?.end();
        return;
      }
      this.#waiting.delete(next);
      next.resolve(this.#place(next.uid));
    }
  }

  /** Returns the waiting search whose user has the fewest that run. Of one user, it is the one that has waited longest. */
  #next(): Waiter | undefined {
    const shares = sharesOf(this.#running);
    const shareOf = ({ uid }: Waiter) => shares.get(uid) ?? 0;
    let next: Waiter | undefined;
    for (const each of this.#waiting) if (!next || shareOf(each) < shareOf(next)) next = each;
    return next;
  }

  /** Returns the search that has run longest, of the user himself or of one who has more places than he has. */
  #victimFor(uid: number): RunningSearch | undefined {
    const shares = sharesOf(this.#running);
    const hasMore = (other: number) => (shares.get(other) ?? 0) > (shares.get(uid) ?? 0);
    return [...this.#running].find((each) => each.isDisturbable && (each.uid === uid || hasMore(each.uid)));
  }

  /** Refuses the latest search of the user who has the most that wait. */
  #refuseOne(): void {
    const shares = sharesOf(this.#waiting);
    const shareOf = ({ uid }: Waiter) => shares.get(uid) ?? 0;
    let refused: Waiter | undefined;
    for (const each of this.#waiting) if (!refused || shareOf(each) >= shareOf(refused)) refused = each;
    if (!refused) return;
    this.#waiting.delete(refused);
    const message = `more than ${MAX_WAITING} searches are waiting: try again later`;
    refused.reject(new EnvdError('resource_exhausted', message));
  }

  #place(uid: number): SearchPlace {
    const search = new RunningSearch(uid, {
      disturbable: () => this.#distribute(),
      leave: () => {
        if (!this.#running.delete(search)) return;
        this.#leaving.add(search);
        this.#distribute();
      },
      left: () => this.#leaving.delete(search),
    });
    this.#running.add(search);
    return search;
  }
}

interface Hooks {
  disturbable(): void;
  leave(): void;
  left(): void;
}

class RunningSearch implements SearchPlace {
  readonly uid: number;
  readonly #hooks: Hooks;
  readonly #end = new AbortController();
  readonly #since = monotonicMs();
  #isKept = false;
  readonly #timer: NodeJS.Timeout;

  constructor(uid: number, hooks: Hooks) {
    this.uid = uid;
    this.#hooks = hooks;
    this.#timer = setTimeout(() => hooks.disturbable(), UNDISTURBED_MS + 1);
  }

  get ended(): AbortSignal {
    return this.#end.signal;
  }

  get isDisturbable(): boolean {
    return !this.#isKept && monotonicMs() - this.#since >= UNDISTURBED_MS;
  }

  /** Ends the search, and gives its place back. */
  end(): void {
    const message = `search was ended: it had run for more than ${UNDISTURBED_MS / 1000} s, and others wait`;
    this.#end.abort(new EnvdError('resource_exhausted', message));
    this.leave();
  }

  keep(): void {
    this.#isKept = true;
  }

  leave(): void {
    clearTimeout(this.#timer);
    this.#hooks.leave();
  }

  left(): void {
    this.leave();
    this.#hooks.left();
  }
}

/** Returns how many searches each user has. */
function sharesOf(searches: Iterable<{ readonly uid: number }>): Map<number, number> {
  const shares = new Map<number, number>();
  for (const { uid } of searches) shares.set(uid, (shares.get(uid) ?? 0) + 1);
  return shares;
}
