import { untilAborted, within } from '../../base/abort.ts';
import { HttpError } from '../../base/errors.ts';
import { monotonicMs } from '../../base/monotonic.ts';
import { isFair } from '../access/shares.ts';
import { beginResume } from '../leases/resumption.ts';
import { isGone, isReachable, isResumable, keepsMemory, type Sandbox } from '../leases/sandbox.ts';
import type { ReadRecord, Registry } from '../registry/registry.ts';
import type { Scheduler } from './scheduler.ts';

export interface ResumeLimits {
  /** A request waits for a resume for at most this time, in seconds. */
  readonly resumeWait: number;
  /** At most this many requests may wait, for all sandboxes together. */
  readonly maxWaiting: number;
  /** This gateway resumes at most this many sandboxes at the same time. */
  readonly maxResumes: number;
}

export interface ResumeParts extends ResumeLimits {
  readonly registry: Registry;
  readonly scheduler: Pick<Scheduler, 'work'>;
  /** Identifies this run of this gateway. */
  readonly owner: string;
  /** True if a hook resumes sandboxes. */
  readonly isOn: boolean;
}

/** Requests that wait for the same sandbox share one watch of its record. */
interface Shared {
  readonly done: Promise<Sandbox | undefined>;
  readonly stop: AbortController;
  waiting: number;
}

/** Calls the hook to resume paused sandboxes when requests need them. It is called once, however many requests wait. */
export class Resumes {
  readonly #parts: ResumeParts;
  readonly #shared = new Map<string, Shared>();
  /** The keys are ids of the sandboxes that this gateway is resuming, and the values their owners. */
  readonly #begun = new Map<string, string | null>();
  /** The numbers of waiting requests. The keys are owners of sandboxes, or ids of sandboxes that have no owner. */
  readonly #waiting = new Map<string, number>();

  constructor(parts: ResumeParts) {
    this.#parts = parts;
  }

  get isOn(): boolean {
    return this.#parts.isOn;
  }

  /** Returns whether a client can have this sandbox resumed. */
  canResume(sandbox: Sandbox): boolean {
    return this.isOn && isGone(sandbox) && isResumable(sandbox);
  }

  /** Returns whether a request must wait for this sandbox, which is not running. */
  isFor(sandbox: Sandbox): boolean {
    // A machine without its memory would not have what a request was for.
    return this.isOn && sandbox.autoResume !== false && isResumable(sandbox) && keepsMemory(sandbox);
  }

  /**
   * Resolves with the record of a sandbox when it runs. If this call begins the resume, the sandbox runs for `seconds`, or for
   * the time that it had left. Throws an error with the status 502 when it cannot be resumed, 503
   * when a limit is reached, and 504 when the resume takes too long. Throws the reason of `signal` when that aborts.
   */
  async run(
    { id, owner }: Pick<Sandbox, 'id' | 'owner'>,
    signal: AbortSignal,
    seconds?: number,
  ): Promise<Sandbox> {
    const { maxWaiting, resumeWait } = this.#parts;
    const party = owner ?? id;
    const own = this.#waiting.get(party) ?? 0;
    const all = [...this.#waiting.values()].reduce((sum, count) => sum + count, 0);
    if (!isFair(own, all, maxWaiting)) {
      const message = `too many requests wait for paused sandboxes (--max-waiting): ${all} in all, ${own} for '${party}': try again later`;
      throw new HttpError(503, message);
    }
    const shared = this.#shared.get(id) ?? this.#share(id, seconds);
    this.#waiting.set(party, own + 1);
    shared.waiting++;
    try {
      const done = untilAborted(shared.done, signal);
      const sandbox = await within<Sandbox | undefined>(resumeWait * 1000, done, () => undefined);
      if (sandbox) return sandbox;
    } finally {
      const left = (this.#waiting.get(party) ?? 0) - 1;
      if (left > 0) this.#waiting.set(party, left);
      else this.#waiting.delete(party);
      if (--shared.waiting === 0) shared.stop.abort();
    }
    throw new HttpError(
      504,
      `sandbox '${id}' is paused and was not resumed within ${resumeWait} s: try again later`,
    );
  }

  #share(id: string, seconds: number | undefined): Shared {
    const stop = new AbortController();
    const look = (found: ReadRecord) => this.#look(id, found, seconds);
    const done = this.#parts.registry.until(id, Number.POSITIVE_INFINITY, look, stop.signal);
    const shared: Shared = { done, stop, waiting: 0 };
    this.#shared.set(id, shared);
    const forget = () => {
      if (this.#shared.get(id) === shared) this.#shared.delete(id);
    };
    done.then(forget, forget);
    stop.signal.addEventListener('abort', forget);
    return shared;
  }

  /** Returns the record if the sandbox runs, and undefined if it does not run yet. Begins the resume of a paused one. */
  async #look(
    id: string,
    { sandbox, now }: ReadRecord,
    seconds: number | undefined,
  ): Promise<Sandbox | undefined> {
    if (!sandbox) throw new HttpError(502, `sandbox '${id}' was not found`);
    if (isReachable(sandbox, now)) return sandbox;
    const { phase, failures, retryAt, deadline } = sandbox;
    // A sandbox that cannot be frozen or thawed would let every request wait in vain.
    const isStuck = failures > 0 && deadline <= now && phase !== 'paused' && phase !== 'resuming';
    if (!isResumable(sandbox) || isStuck)
      throw new HttpError(502, `sandbox '${id}' was not found: it has expired`);
    if (phase !== 'paused') return undefined;
    if (retryAt > now) {
      const seconds = Math.ceil((retryAt - now) / 1000);
      throw new HttpError(502, `sandbox '${id}' could not be resumed: try again in ${seconds} s`);
    }
    await this.#begin(sandbox, seconds);
    return undefined;
  }

  async #begin({ id, owner }: Sandbox, seconds: number | undefined): Promise<void> {
    const { scheduler, maxResumes } = this.#parts;
    // This gateway may still be resuming the sandbox although the requests that began it are gone.
    if (this.#begun.has(id)) return;
    const own = !owner ? 0 : [...this.#begun.values()].filter((each) => each === owner).length;
    if (!isFair(own, this.#begun.size, maxResumes)) {
      const message = `too many sandboxes are being resumed (--max-resumes): ${this.#begun.size}: try again later`;
      throw new HttpError(503, message);
    }
    this.#begun.set(id, owner ?? null);
    const since = monotonicMs();
    try {
      const sandbox = await this.#claim(id, seconds);
      if (sandbox) void scheduler.work(sandbox, since).finally(() => this.#begun.delete(id));
      else this.#begun.delete(id);
    } catch (error) {
      this.#begun.delete(id);
      throw error;
    }
  }

  /** Returns null if another gateway was quicker, or if the sandbox is no longer paused. */
  async #claim(id: string, seconds: number | undefined): Promise<Sandbox | null> {
    let isClaimed = false;
    const sandbox = await this.#parts.registry.change(id, (current, now) => {
      const next =
        current.phase === 'paused' ? beginResume(current, this.#parts.owner, now, seconds) : current;
      isClaimed = next !== current;
      return next;
    });
    return isClaimed && sandbox ? sandbox : null;
  }
}
