import { untilAborted, within } from '../../base/abort.ts';
import { HttpError } from '../../base/errors.ts';
import { monotonicMs } from '../../base/monotonic.ts';
import { isFair } from '../access/shares.ts';
import { isReachable, isResumable, type Sandbox } from '../leases/sandbox.ts';
import { beginResume } from '../leases/transitions.ts';
import type { ReadRecord, Registry } from '../registry/registry.ts';
import type { Scheduler } from './scheduler.ts';

export interface ResumeLimits {
  /** How long a request waits, in seconds. */
  readonly resumeWait: number;
  /** The most requests that may wait, for all sandboxes together. */
  readonly maxWaiting: number;
  /** The most sandboxes that this gateway resumes concurrently. */
  readonly maxResumes: number;
}

export interface ResumeParts extends ResumeLimits {
  readonly registry: Registry;
  readonly scheduler: Pick<Scheduler, 'work'>;
  /** Identifies this run of this gateway. */
  readonly owner: string;
  /** Whether there is a hook that resumes. */
  readonly isOn: boolean;
}

/** Requests that wait for the same sandbox share one watch of its record. */
interface Shared {
  readonly done: Promise<Sandbox | undefined>;
  readonly stop: AbortController;
  waiting: number;
}

/** Resumes paused sandboxes by the hook when requests need them: once, however many requests wait. */
export class Resumes {
  readonly #parts: ResumeParts;
  readonly #shared = new Map<string, Shared>();
  /** Sandboxes that this gateway is resuming, and their owners. */
  readonly #begun = new Map<string, string | null>();
  /** How many requests wait, by the owner of the sandbox, or by the sandbox where it has none. */
  readonly #waiting = new Map<string, number>();

  constructor(parts: ResumeParts) {
    this.#parts = parts;
  }

  get isOn(): boolean {
    return this.#parts.isOn;
  }

  /** Whether a request waits for this sandbox, which is not running. */
  isFor(sandbox: Sandbox): boolean {
    return this.isOn && sandbox.autoResume !== false && isResumable(sandbox);
  }

  /**
   * Resolves with the record of a sandbox once it runs. Throws an error with status 502 when it cannot be resumed, 503
   * beyond a limit, 504 when it takes too long, and the reason of `signal` when that aborts.
   */
  async run({ id, owner }: Pick<Sandbox, 'id' | 'owner'>, signal: AbortSignal): Promise<Sandbox> {
    const { maxWaiting, resumeWait } = this.#parts;
    const party = owner ?? id;
    const own = this.#waiting.get(party) ?? 0;
    const all = [...this.#waiting.values()].reduce((sum, count) => sum + count, 0);
    if (!isFair(own, all, maxWaiting)) {
      const message = `${all} requests wait for sandboxes to be resumed, ${own} of them for '${party}', the most that may: try again later`;
      throw new HttpError(503, message);
    }
    const shared = this.#shared.get(id) ?? this.#share(id);
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
    throw new HttpError(504, `sandbox '${id}' is paused, and does not run again within ${resumeWait} s`);
  }

  #share(id: string): Shared {
    const stop = new AbortController();
    const look = (found: ReadRecord) => this.#look(id, found);
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

  /** Undefined: it is not running yet. */
  async #look(id: string, { sandbox, now }: ReadRecord): Promise<Sandbox | undefined> {
    if (!sandbox) throw new HttpError(502, `sandbox '${id}' is not known`);
    if (isReachable(sandbox, now)) return sandbox;
    const { phase, failures, retryAt, deadline } = sandbox;
    // A sandbox that cannot be frozen or thawed would keep every request waiting in vain.
    const isStuck = failures > 0 && deadline <= now && phase !== 'paused' && phase !== 'resuming';
    if (!isResumable(sandbox) || isStuck) throw new HttpError(502, `sandbox '${id}' has expired`);
    if (phase !== 'paused') return undefined;
    if (retryAt > now) {
      const seconds = Math.ceil((retryAt - now) / 1000);
      throw new HttpError(
        502,
        `sandbox '${id}' could not be resumed: it is tried again in ${seconds} s or later`,
      );
    }
    await this.#begin(id, sandbox.owner ?? null);
    return undefined;
  }

  async #begin(id: string, owner: string | null): Promise<void> {
    const { scheduler, maxResumes } = this.#parts;
    // The requests that began it may have gone.
    if (this.#begun.has(id)) return;
    const own = owner === null ? 0 : [...this.#begun.values()].filter((each) => each === owner).length;
    if (!isFair(own, this.#begun.size, maxResumes)) {
      const message = `${this.#begun.size} sandboxes are being resumed, the most that may: try again later`;
      throw new HttpError(503, message);
    }
    this.#begun.set(id, owner);
    const since = monotonicMs();
    try {
      const sandbox = await this.#claim(id);
      if (sandbox) void scheduler.work(sandbox, since).finally(() => this.#begun.delete(id));
      else this.#begun.delete(id);
    } catch (error) {
      this.#begun.delete(id);
      throw error;
    }
  }

  /** Null: another gateway was quicker, or there is nothing left to resume. */
  async #claim(id: string): Promise<Sandbox | null> {
    let isClaimed = false;
    const sandbox = await this.#parts.registry.change(id, (current, now) => {
      const next = current.phase === 'paused' ? beginResume(current, this.#parts.owner, now) : current;
      isClaimed = next !== current;
      return next;
    });
    return isClaimed && sandbox ? sandbox : null;
  }
}
