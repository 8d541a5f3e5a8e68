import { EnvdError, messageOf } from '../../../base/errors.ts';
import type { ExclusiveLock } from '../../../base/exclusion.ts';
import { Durations } from '../../../base/tally.ts';
import { Cgroup } from '../../os/cgroup2.ts';
import { type Candidate, hierarchyCandidates } from './candidates.ts';
import { FrozenRecord, WATCHDOG_MS, Watchdog } from './recovery.ts';
import { auditFrozen, type FreezeAudit, freezeAll, observe, survey, thawAll } from './sweep.ts';

/** `legacy`: the daemon's own `user` and `ptys`; `hierarchy`: everything but what the daemon and a resume need. */
export type FreezeMode = 'legacy' | 'hierarchy';

export const FREEZE_MODES: readonly FreezeMode[] = ['legacy', 'hierarchy'];

/**
 * What a freeze has met and done, in the order of the wire.
 * visited = allowlisted + preFrozen + requested + failed; requested = frozen + notFrozen + unobservable.
 */
export interface FreezeStatistics {
  readonly mode: FreezeMode;
  /** Cgroups looked at; those below a cgroup that is frozen as a whole are not. */
  readonly visited: number;
  /** Left running: the daemon's own chain, and what a resume depends on. */
  readonly allowlisted: number;
  /** Whether there were more cgroups than the caller allowed to visit. */
  readonly truncated: boolean;
  /** Left alone: the guest had frozen them itself. */
  readonly preFrozen: number;
  /** Asked to freeze. */
  readonly requested: number;
  readonly frozen: number;
  /** Still not frozen when the wait was over. */
  readonly notFrozen: number;
  /** Refused by the kernel. */
  readonly failed: number;
  /** Gone, or unreadable, before they were seen frozen. */
  readonly unobservable: number;
  /** Whole milliseconds, as `waitMs`. */
  readonly sweepMs: number;
  readonly waitMs: number;
}

export interface FreezerOptions {
  /** The daemon's own cgroups that clients' processes run in; none without cgroup v2. */
  readonly workload: readonly Cgroup[];
  /** The top of what hierarchy mode freezes and the daemon's own cgroup; null without cgroup v2. */
  readonly hierarchy: { readonly top: Cgroup; readonly own: Cgroup } | null;
  /** Why the workload cannot be frozen here at all, or null. */
  readonly obstacle: string | null;
  /** File that tells a restarted daemon what is frozen; on a filesystem that no fsfreeze stops. */
  readonly recordFile: string;
  /** One operation before a pause at a time. */
  readonly lock: ExclusiveLock;
  /** Told that the watchdog has thawed (null), or of the error when it could not. */
  readonly onWatchdog: (error: unknown) => void;
}

export interface FreezeRequest {
  readonly mode: FreezeMode;
  /** How many cgroups to look at, at most. */
  readonly maxCgroups: number;
  /** How long to wait until all read back frozen; 0: they are read once. */
  readonly maxWaitMs: number;
}

/** Stops the workload before a pause and lets it go on after; whatever happens, nothing stays frozen for good. */
export class Freezer implements Disposable {
  readonly durations = new Durations();
  readonly #options: FreezerOptions;
  readonly #record: FrozenRecord;
  readonly #watchdog = new Watchdog(WATCHDOG_MS, () => this.#expire());
  /** What this daemon, or one before it, has asked to freeze, by path. */
  readonly #frozen = new Map<string, Cgroup>();
  /** Those that were not seen frozen before the answer. */
  #late: ReadonlySet<string> = new Set();
  /** Ends the wait of the freeze that is under way. */
  #wait = new AbortController();

  constructor(options: FreezerOptions) {
    this.#options = options;
    this.#record = new FrozenRecord(options.recordFile);
    const leftFrozen = options.workload.filter((cgroup) => cgroup.freezeRequested());
    const recorded = this.#record.read().map((path) => new Cgroup(path));
    for (const cgroup of [...leftFrozen, ...recorded]) this.#frozen.set(cgroup.path, cgroup);
    if (this.active) this.#watchdog.arm();
  }

  /** Whether a freeze has not been undone yet: starting a process in a frozen cgroup would block the daemon. */
  get active(): boolean {
    return this.#frozen.size > 0;
  }

  /**
   * Freezes, and waits up to `maxWaitMs` until all that was asked to freeze has done so; what has not by then stays
   * asked. Throws `failed_precondition` where nothing can be frozen, `unavailable` while another operation holds the
   * lock, `aborted` when `signal` or a thaw ends the wait.
   */
  async freeze(request: FreezeRequest, signal: AbortSignal): Promise<FreezeStatistics> {
    const { lock, obstacle } = this.#options;
    if (obstacle !== null) throw cannotFreeze(obstacle);
    using _ = lock.acquire('freeze');
    return await this.durations.measure(() => this.#freeze(request, signal));
  }

  /** What has become of the cgroups that were frozen, before they are thawed. */
  audit(): FreezeAudit {
    return auditFrozen([...this.#frozen.values()], this.#late);
  }

  /**
   * Thaws what a freeze has frozen, this daemon's or that of one that died before it could; ends a freeze that is
   * still waiting. What the guest froze itself stays frozen. Throws `internal` when a cgroup cannot be thawed.
   */
  async thaw(): Promise<void> {
    this.#thaw();
  }

  /** Leaves nothing frozen behind. */
  [Symbol.dispose](): void {
    this.#watchdog.disarm();
    this.#thaw();
    this.#watchdog.disarm();
  }

  async #freeze(request: FreezeRequest, signal: AbortSignal): Promise<FreezeStatistics> {
    const started = performance.now();
    const isOurs = ({ path }: Cgroup) => this.#frozen.has(path);
    const { targets, ...counts } = survey(this.#candidates(request.mode), request.maxCgroups, isOurs);
    const added = targets.filter((cgroup) => !isOurs(cgroup));
    this.#remember(targets);
    const failures = freezeAll(targets);
    const [first] = failures;
    if (first && failures.length === targets.length) {
      this.#forget(added);
      throw cannotFreeze(messageOf(first.error));
    }
    const failed = new Set(failures.map(({ cgroup }) => cgroup));
    const requested = targets.filter((cgroup) => !failed.has(cgroup));
    const swept = performance.now();
    this.#wait = new AbortController();
    const ended = AbortSignal.any([signal, this.#wait.signal]);
    const { frozen, pending, unobservable } = await observe(requested, request.maxWaitMs, ended);
    this.#late = new Set(pending.map(({ path }) => path));
    return {
      mode: request.mode,
      ...counts,
      requested: requested.length,
      frozen,
      notFrozen: pending.length,
      failed: failed.size,
      unobservable,
      sweepMs: Math.round(swept - started),
      waitMs: Math.round(performance.now() - swept),
    };
  }

  #candidates(mode: FreezeMode): Iterable<Candidate> {
    const { workload, hierarchy } = this.#options;
    if (mode === 'hierarchy' && hierarchy) return hierarchyCandidates(hierarchy.top, hierarchy.own, workload);
    return workload.map((cgroup) => ({ cgroup, keep: false }));
  }

  /** Before the first is frozen: a daemon that dies right after it can still be followed by one that thaws. */
  #remember(targets: readonly Cgroup[]): void {
    for (const cgroup of targets) this.#frozen.set(cgroup.path, cgroup);
    this.#writeRecord();
    if (this.active) this.#watchdog.arm();
  }

  #forget(cgroups: readonly Cgroup[]): void {
    for (const { path } of cgroups) this.#frozen.delete(path);
    this.#writeRecord();
    if (!this.active) this.#watchdog.disarm();
  }

  /** The workload is left out: a new daemon finds it, and sees by itself whether it is frozen. */
  #writeRecord(): void {
    const own = new Set(this.#options.workload.map(({ path }) => path));
    this.#record.write([...this.#frozen.keys()].filter((path) => !own.has(path)));
  }

  #thaw(): void {
    this.#wait.abort();
    const failures = thawAll(this.#frozen.values());
    this.#frozen.clear();
    this.#late = new Set();
    for (const { cgroup } of failures) this.#frozen.set(cgroup.path, cgroup);
    this.#writeRecord();
    if (!this.active) this.#watchdog.disarm();
    const [first] = failures;
    if (!first) return;
    const text = `cannot thaw cgroup '${first.cgroup.path}': ${messageOf(first.error)}`;
    throw new EnvdError('internal', text, { cause: first.error });
  }

  #expire(): void {
    try {
      this.#thaw();
      this.#options.onWatchdog(null);
    } catch (error) {
      this.#watchdog.arm();
      this.#options.onWatchdog(error);
    }
  }
}

function cannotFreeze(reason: string): EnvdError {
  return new EnvdError('failed_precondition', `cannot freeze the workload: ${reason}`);
}
