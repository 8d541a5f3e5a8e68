import { setTimeout as sleep } from 'node:timers/promises';
import { monotonicMs } from '../../../base/monotonic.ts';
import { type Cgroup, hasVanished } from '../../linux/cgroups/cgroup2.ts';
import type { Candidate } from './candidates.ts';

export interface CgroupSurvey {
  readonly visited: number;
  readonly allowlisted: number;
  readonly truncated: boolean;
  readonly preFrozen: number;
  /** Cgroups to freeze. */
  readonly targets: readonly Cgroup[];
}

/**
 * Classifies at most `maxCgroups` candidates, without changing anything. A cgroup whose freeze is already requested
 * counts as frozen by the guest, unless `isOurs`. One that is removed meanwhile is not counted.
 */
export function survey(
  candidates: Iterable<Candidate>,
  maxCgroups: number,
  isOurs: (cgroup: Cgroup) => boolean,
): CgroupSurvey {
  const targets: Cgroup[] = [];
  let allowlisted = 0;
  let preFrozen = 0;
  for (const { cgroup, keep } of candidates) {
    const visited = allowlisted + preFrozen + targets.length;
    if (visited === maxCgroups) return { visited, allowlisted, truncated: true, preFrozen, targets };
    const requested = keep ? false : freezeRequested(cgroup);
    if (requested === null) continue;
    if (keep) allowlisted++;
    else if (requested && !isOurs(cgroup)) preFrozen++;
    else targets.push(cgroup);
  }
  return {
    visited: allowlisted + preFrozen + targets.length,
    allowlisted,
    truncated: false,
    preFrozen,
    targets,
  };
}

/** Null when the cgroup does not exist. */
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

/** Requests a freeze of all; returns the failures. A removed cgroup is not a failure. */
export function freezeAll(cgroups: Iterable<Cgroup>): CgroupFailure[] {
  return failuresOf(cgroups, (cgroup) => cgroup.freeze());
}

/** Thaws all, continuing after errors; returns the failures. A removed cgroup is not a failure. */
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
  /** Not frozen by the end of the wait. */
  readonly pending: readonly Cgroup[];
  readonly unobservable: number;
}

/** Polling interval, in milliseconds. Cheaper than epoll on cgroup.events: a hundred processes stop within 10 ms. */
const INTERVAL_MS = 1;

/**
 * Reads the state of the cgroups, immediately and then every millisecond, until all are frozen or `maxWaitMs` have
 * passed. Throws the reason of `signal` when it aborts; the freeze stays requested.
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

/** The audit of a freeze of the hierarchy: what a look at all cgroups before the thaw found. In the order of the wire. */
export interface FreezeAudit {
  /** Cgroups looked at, without the descendants of those that a freeze includes. */
  readonly visited: number;
  readonly frozen: number;
  /** Not frozen and not empty, although they should be: made after the freeze, or thawed. */
  readonly escaped: number;
  /** Frozen, although they are on the allowlist. */
  readonly violations: number;
  /** Whether there are more cgroups than were looked at. */
  readonly truncated: boolean;
}

/** Limit of an audit, in milliseconds: the workload waits for it. */
const AUDIT_LIMIT_MS = 25;

/** Looks at no more than `maxCgroups` candidates. One that is removed meanwhile is not counted. */
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

/** `vanished`: removed or unreadable. */
function stateOf(cgroup: Cgroup): 'frozen' | 'running' | 'vanished' {
  try {
    return cgroup.isFrozen() ? 'frozen' : 'running';
  } catch {
    return 'vanished';
  }
}
