import { onAbort } from '../../../base/abort.ts';
import { EnvdError, messageOf } from '../../../base/errors.ts';
import type { ExclusiveLock } from '../../../base/exclusion.ts';
import { monotonicMs } from '../../../base/monotonic.ts';
import { debug } from '../../../base/program/debug.ts';
import { Durations } from '../../../base/tally.ts';
import { Cgroup } from '../../linux/cgroups/cgroup2.ts';
import { type Candidate, hierarchyCandidates } from './candidates.ts';
import { FrozenRecord, Watchdog } from './recovery.ts';
import { auditHierarchy, type FreezeAudit, freezeAll, observeFreeze, survey, thawAll } from './sweep.ts';

/** `legacy` freezes the cgroups `user` and `ptys`, and `hierarchy` all except the daemon's own and the allowlist. */
export type FreezeMode = 'legacy' | 'hierarchy';

export const FREEZE_MODES: readonly FreezeMode[] = ['legacy', 'hierarchy'];

/**
 * The counts of a freeze, in the order of the wire. `visited` is the sum of `allowlisted`, `preFrozen`, `requested` and
 * `failed`; `requested` is the sum of `frozen`, `notFrozen` and `unobservable`.
 */
export interface FreezeStatistics {
  readonly mode: FreezeMode;
  /** Cgroups that were examined, without the descendants of those that were frozen. */
  readonly visited: number;
  /** Cgroups that were left running: the daemon's own, its ancestors, and the allowlist. */
  readonly allowlisted: number;
  /** Whether there are more than `maxCgroups` cgroups besides those of the workload. */
  readonly truncated: boolean;
  /** Cgroups that were not touched because the guest itself had frozen them. */
  readonly preFrozen: number;
  readonly requested: number;
  readonly frozen: number;
  /** Cgroups that were not frozen at the end of the wait. */
  readonly notFrozen: number;
  readonly failed: number;
  /** Cgroups that were removed or unreadable before they were seen frozen. */
  readonly unobservable: number;
  /** How long the requests took, in whole milliseconds. */
  readonly sweepMs: number;
  /** How long the wait took, in whole milliseconds. */
  readonly waitMs: number;
}

export interface FreezerOptions {
  /** The cgroups of clients' processes; there are none without cgroup v2. */
  readonly workload: readonly Cgroup[];
  /** The cgroup below which `hierarchy` freezes, and the daemon's own cgroup; null without cgroup v2. */
  readonly hierarchy: { readonly top: Cgroup; readonly own: Cgroup } | null;
  /** Why the workload cannot be frozen; null when it can. */
  readonly obstacle: string | null;
  /** The file from which a later daemon learns what is frozen. It is on a file system that is never frozen. */
  readonly recordFile: string;
  /** Excludes other operations before a pause. */
  readonly lock: ExclusiveLock;
  /** Called when the watchdog has thawed, with null or the error of a failed attempt. */
  readonly onWatchdog: (error: unknown) => void;
  /** Called when the record cannot be updated after a thaw. */
  readonly onStaleRecord: (error: unknown) => void;
}

export interface FreezeRequest {
  readonly mode: FreezeMode;
  /** The most cgroups to examine, besides those of the workload. */
  readonly maxCgroups: number;
  /** How long to wait until all are frozen; with 0 their state is read once. */
  readonly maxWaitMs: number;
}

/** The most cgroups that an audit looks at after a freeze by an earlier daemon, whose limit is not known. */
const RECORDED_MAX = 512;

/** Freezes the workload before a pause, and thaws it after the resume. A watchdog thaws it if nobody else does. */
export class Freezer implements Disposable {
  readonly durations = new Durations();
  readonly #options: FreezerOptions;
  readonly #record: FrozenRecord;
  readonly #watchdog: Watchdog;
  /** Cgroups that this daemon, or a previous one, has frozen and not thawed, by path. */
  readonly #frozen = new Map<string, Cgroup>();
  /** The most cgroups that an audit looks at; null when there was no freeze of the hierarchy since the last thaw. */
  #audited: number | null = null;
  /** The last audit, until the platform has received it. */
  #unreported: FreezeAudit | null = null;
  /** Ends the wait of a freeze that is under way; null when there is none. */
  #wait: AbortController | null = null;

  constructor(options: FreezerOptions) {
    this.#options = options;
    this.#watchdog = new Watchdog(() => this.thaw(), options.onWatchdog);
    this.#record = new FrozenRecord(options.recordFile, options.onStaleRecord);
    const leftFrozen = options.workload.filter((cgroup) => cgroup.freezeRequested());
    const recorded = this.#record.read().map((path) => new Cgroup(path));
    for (const cgroup of [...leftFrozen, ...recorded]) this.#frozen.set(cgroup.path, cgroup);
    // A record means that the hierarchy was frozen, because the workload is not recorded.
    if (recorded.length > 0) this.#audited = Math.max(recorded.length, RECORDED_MAX);
    if (this.active) this.#watchdog.arm();
  }

  get watchdogThaws(): number {
    return this.#watchdog.thaws;
  }

  /** Whether anything is frozen. The start of a process in a frozen cgroup would block. */
  get active(): boolean {
    return this.#frozen.size > 0;
  }

  /**
   * Requests the freezes, and waits up to `maxWaitMs` until all cgroups are frozen. The freezes of those that are not frozen
   * by then stay requested. Throws `failed_precondition` where nothing can be frozen, `unavailable` while another operation
   * holds the lock, `aborted` when a thaw ends the wait, and the reason of `signal`.
   */
  async freeze(request: FreezeRequest, signal: AbortSignal): Promise<FreezeStatistics> {
    const { lock, obstacle } = this.#options;
    if (obstacle !== null) throw cannotFreeze(obstacle);
    using _ = lock.acquire('freeze');
    return await this.durations.measure(() => this.#freeze(request, signal));
  }

  /**
   * Audits the last freeze of the hierarchy; returns null when there was none. Call it before the thaw. After the thaw it
   * returns the same result again, until `takeAudit` is called.
   */
  audit(): FreezeAudit | null {
    if (this.#audited !== null)
      this.#unreported = auditHierarchy(this.#candidates('hierarchy'), this.#audited);
    return this.#unreported;
  }

  /** Returns the audit for one answer; null when there is none, or another answer has it. Call `keepAudit` if it is lost. */
  takeAudit(): FreezeAudit | null {
    const audit = this.#unreported;
    this.#unreported = null;
    return audit;
  }

  keepAudit(audit: FreezeAudit): void {
    this.#unreported ??= audit;
  }

  /**
   * Thaws what this daemon, or a previous one that died, has frozen, and ends the wait of a freeze that is under way. Cgroups
   * that the guest itself has frozen stay frozen. Throws `internal` when a cgroup cannot be thawed.
   */
  thaw(): void {
    this.#wait?.abort(new EnvdError('aborted', 'the wait for the freeze was canceled'));
    if (this.active) debug('freeze', 'thawing cgroups', () => ({ cgroups: this.#frozen.size }));
    const failures = thawAll(this.#frozen.values());
    this.#frozen.clear();
    if (failures.length === 0) this.#audited = null;
    for (const { cgroup } of failures) this.#frozen.set(cgroup.path, cgroup);
    this.#update();
    const [first] = failures;
    if (!first) return;
    const text = `cannot thaw cgroup '${first.cgroup.path}': ${messageOf(first.error)}`;
    throw new EnvdError('internal', text, { cause: first.error });
  }

  [Symbol.dispose](): void {
    this.#watchdog.disarm();
    this.thaw();
  }

  async #freeze(request: FreezeRequest, signal: AbortSignal): Promise<FreezeStatistics> {
    const started = monotonicMs();
    // The cgroups of the workload do not count, because they are always frozen.
    const limit = request.maxCgroups + this.#options.workload.length;
    const isOurs = ({ path }: Cgroup) => this.#frozen.has(path);
    const { targets, ...counts } = survey(this.#candidates(request.mode), limit, isOurs);
    this.#unreported = null;
    const added = targets.filter((cgroup) => !isOurs(cgroup));
    this.#remember(added);
    const failures = freezeAll(targets);
    const failed = new Set(failures.map(({ cgroup }) => cgroup));
    this.#forget(added.filter((cgroup) => failed.has(cgroup)));
    const [first] = failures;
    if (first && failures.length === targets.length) throw cannotFreeze(messageOf(first.error));
    const requested = targets.filter((cgroup) => !failed.has(cgroup));
    if (request.mode === 'hierarchy') this.#audited = limit;
    const swept = monotonicMs();
    const { frozen, pending, unobservable } = await this.#observe(requested, request.maxWaitMs, signal);
    const statistics = {
      mode: request.mode,
      ...counts,
      requested: requested.length,
      frozen,
      notFrozen: pending.length,
      failed: failed.size,
      unobservable,
      sweepMs: Math.round(swept - started),
      waitMs: Math.round(monotonicMs() - swept),
    };
    debug('freeze', 'cgroups frozen', () => statistics);
    return statistics;
  }

  /** Throws `aborted` when a thaw ends the wait. */
  async #observe(
    requested: readonly Cgroup[],
    maxWaitMs: number,
    signal: AbortSignal,
  ): ReturnType<typeof observeFreeze> {
    this.#wait = new AbortController();
    const removeListener = onAbort(signal, () => this.#wait?.abort(signal.reason));
    try {
      return await observeFreeze(requested, maxWaitMs, this.#wait.signal);
    } finally {
      removeListener();
      this.#wait = null;
    }
  }

  #candidates(mode: FreezeMode): Iterable<Candidate> {
    const { workload, hierarchy } = this.#options;
    if (mode === 'hierarchy' && hierarchy) return hierarchyCandidates(hierarchy.top, hierarchy.own, workload);
    return workload.map((cgroup) => ({ cgroup, keep: false }));
  }

  /**
   * Records cgroups before they are frozen, so that after a crash the next daemon can thaw them. Changes nothing when that
   * fails.
   */
  #remember(added: readonly Cgroup[]): void {
    const isRecorded = this.#recorded(added).length > 0;
    if (isRecorded) this.#record.write(this.#recorded([...this.#frozen.values(), ...added]));
    for (const cgroup of added) this.#frozen.set(cgroup.path, cgroup);
    if (this.active) this.#watchdog.arm();
  }

  #forget(cgroups: readonly Cgroup[]): void {
    for (const { path } of cgroups) this.#frozen.delete(path);
    if (cgroups.length > 0) this.#update();
  }

  /** Updates the watchdog and the record after cgroups were thawed or forgotten. */
  #update(): void {
    if (!this.active) this.#watchdog.disarm();
    this.#record.update(this.#recorded([...this.#frozen.values()]));
  }

  /** Returns the paths to record. Those of the workload are left out, because a new daemon knows and examines them. */
  #recorded(cgroups: readonly Cgroup[]): string[] {
    const { workload } = this.#options;
    return cgroups.map(({ path }) => path).filter((path) => !workload.some((known) => known.path === path));
  }
}

function cannotFreeze(reason: string): EnvdError {
  return new EnvdError('failed_precondition', `cannot freeze the workload: ${reason}`);
}
