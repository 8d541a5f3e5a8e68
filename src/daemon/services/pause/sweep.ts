import { setTimeout as sleep } from 'node:timers/promises';
import { monotonicMs } from '../../../base/monotonic.ts';
import { type Cgroup, hasVanished } from '../../linux/cgroups/cgroup2.ts';
import type { Candidate } from './candidates.ts';

export interface CgroupSurvey {
  readonly visited: number;
  readonly allowlisted: number;
  readonly truncated: boolean;
  readonly preFrozen: number;
  readonly targets: readonly Cgroup[];
}

/**
 * Classifies at most `maxCgroups` candidates, and changes nothing. A cgroup whose freeze was requested before counts as
 * frozen by the guest, unless `isOurs` is true of it. A cgroup that is removed meanwhile is not counted.
 */
export function survey(
  candidates: Iterable<Candidate>,
  maxCgroups: number,
  isOurs: (cgroup: Cgroup) => boolean,
): CgroupSurvey {
  const targets: Cgroup[] = [];
  let allowlisted = 0;
  let preFrozen = 0;
  let truncated = false;
  const visited = () => allowlisted + preFrozen + targets.length;
  for (const { cgroup, keep } of candidates) {
    truncated = visited() === maxCgroups;
    if (truncated) break;
    const requested = keep ? false : freezeRequested(cgroup);
    if (requested === null) continue;
    if (keep) allowlisted++;
    else if (requested && !isOurs(cgroup)) preFrozen++;
    else targets.push(cgroup);
  }
  return { visited: visited(), allowlisted, truncated, preFrozen, targets };
}

/** Returns whether a freeze of the cgroup was requested; null when the cgroup does not exist. */
function freezeRequested(cgroup: Cgroup): boolean | null {
  try {
    return cgroup.freezeRequested();
  } catch (error) {
    if (hasVanished(error)) return null;
    throw error;
  }
}

export interface CgroupFailure {
  readonly cgroup: Cgroup;
  readonly error: unknown;
}

/** Requests a freeze of all cgroups; returns the failures. A cgroup that was removed is no failure. */
export function freezeAll(cgroups: Iterable<Cgroup>): CgroupFailure[] {
  return failuresOf(cgroups, (cgroup) => cgroup.freeze());
}

/** Thaws all cgroups, also after an error; returns the failures. A cgroup that was removed is no failure. */
export function thawAll(cgroups: Iterable<Cgroup>): CgroupFailure[] {
  return failuresOf(cgroups, (cgroup) => cgroup.thaw());
}

function failuresOf(cgroups: Iterable<Cgroup>, change: (cgroup: Cgroup) => void): CgroupFailure[] {
  const failures: CgroupFailure[] = [];
  for (const cgroup of cgroups) {
    try {
      change(cgroup);
    } catch (error) {
      if (!hasVanished(error)) failures.push({ cgroup, error });
    }
  }
  return failures;
}

export interface Observation {
  readonly frozen: number;
  /** The cgroups that were not frozen at the end of the wait. */
  readonly pending: readonly Cgroup[];
  readonly unobservable: number;
}

/** How often the state is read, in milliseconds. A freeze takes a few of them, so epoll on cgroup.events would cost more. */
const INTERVAL_MS = 1;

/**
 * Reads the state of the cgroups at once and then every millisecond, until all are frozen or `maxWaitMs` have passed. Throws
 * the reason of `signal`; the freezes stay requested then.
 */
export async function observeFreeze(
  cgroups: readonly Cgroup[],
  maxWaitMs: number,
  signal: AbortSignal,
): Promise<Observation> {
  const deadline = monotonicMs() + maxWaitMs;
  let pending = cgroups;
  let frozen = 0;
  for (;;) {
    const states = Map.groupBy(pending, stateOf);
    frozen += states.get('frozen')?.length ?? 0;
    pending = states.get('running') ?? [];
    if (pending.length === 0 || monotonicMs() >= deadline) break;
    await pause(signal);
  }
  return { frozen, pending, unobservable: cgroups.length - frozen - pending.length };
}

async function pause(signal: AbortSignal): Promise<void> {
  try {
    await sleep(INTERVAL_MS, undefined, { signal });
  } catch {
    throw signal.reason;
  }
}

/**
 * What a look at all cgroups before the thaw found after a freeze of the hierarchy. The order of the members is that of the
 * wire.
 */
export interface FreezeAudit {
  /** Cgroups that were looked at, without the descendants of those whose freeze includes them. */
  readonly visited: number;
  readonly frozen: number;
  /** Cgroups with processes that should be frozen and are not, because they were made after the freeze, or thawed. */
  readonly escaped: number;
  /** Cgroups that are frozen although they are on the allowlist. */
  readonly violations: number;
  /** Whether there are cgroups that were not looked at. */
  readonly truncated: boolean;
}

/** How long an audit may take, in milliseconds. The workload waits for it. */
const AUDIT_LIMIT_MS = 25;

/** Looks at no more than `maxCgroups` candidates. A cgroup that is removed meanwhile is not counted. */
export function auditHierarchy(candidates: Iterable<Candidate>, maxCgroups: number): FreezeAudit {
  const deadline = monotonicMs() + AUDIT_LIMIT_MS;
  const audit = { visited: 0, frozen: 0, escaped: 0, violations: 0, truncated: false };
  for (const { cgroup, keep } of candidates) {
    if (audit.visited === maxCgroups || monotonicMs() > deadline) return { ...audit, truncated: true };
    const state = stateOf(cgroup);
    if (state === 'vanished') continue;
    audit.visited++;
    if (keep) audit.violations += state === 'frozen' ? 1 : 0;
    else if (state === 'frozen') audit.frozen++;
    else if (cgroup.populated()) audit.escaped++;
  }
  return audit;
}

/** Returns `vanished` when the cgroup was removed or cannot be read. */
function stateOf(cgroup: Cgroup): 'frozen' | 'running' | 'vanished' {
  try {
    return cgroup.isFrozen() ? 'frozen' : 'running';
  } catch {
    return 'vanished';
  }
}
