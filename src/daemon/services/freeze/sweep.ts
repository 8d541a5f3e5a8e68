import { setTimeout as sleep } from 'node:timers/promises';
import { EnvdError } from '../../../base/errors.ts';
import { type Cgroup, hasVanished } from '../../os/cgroup2.ts';
import type { Candidate } from './candidates.ts';

export interface Survey {
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
): Survey {
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
 * passed. Throws `aborted` when `signal` aborts; the freeze stays requested.
 */
export async function observe(
  cgroups: readonly Cgroup[],
  maxWaitMs: number,
  signal: AbortSignal,
): Promise<Observation> {
  const deadline = performance.now() + maxWaitMs;
  let pending = cgroups;
  let frozen = 0;
  for (;;) {
    const states = Map.groupBy(pending, stateOf);
    frozen += states.get('frozen')?.length ?? 0;
    pending = states.get('running') ?? [];
    if (pending.length === 0 || performance.now() >= deadline) break;
    await pause(signal);
  }
  return { frozen, pending, unobservable: cgroups.length - frozen - pending.length };
}

async function pause(signal: AbortSignal): Promise<void> {
  try {
    await sleep(INTERVAL_MS, undefined, { signal });
  } catch (error) {
    throw new EnvdError('aborted', 'wait for the freeze was cancelled', { cause: error });
  }
}

/**
 * State of the frozen cgroups before the thaw, reported to the platform.
 * requested = stillFrozen + notFrozen + vanished.
 */
export interface FreezeAudit {
  /** Cgroups that the daemon has requested to freeze and not thawed. */
  readonly requested: number;
  readonly stillFrozen: number;
  /** Thawed by another process, or never frozen because a task did not stop. */
  readonly notFrozen: number;
  /** Removed or unreadable. */
  readonly vanished: number;
  /** Of `stillFrozen`: not frozen at the end of the wait. */
  readonly late: number;
}

/** `late`: paths of cgroups that were not frozen at the end of the wait. */
export function auditFrozen(cgroups: readonly Cgroup[], late: ReadonlySet<string>): FreezeAudit {
  const states = Map.groupBy(cgroups, stateOf);
  const frozen = states.get('frozen') ?? [];
  return {
    requested: cgroups.length,
    stillFrozen: frozen.length,
    notFrozen: states.get('running')?.length ?? 0,
    vanished: states.get('vanished')?.length ?? 0,
    late: frozen.filter(({ path }) => late.has(path)).length,
  };
}

/** `vanished`: removed or unreadable. */
function stateOf(cgroup: Cgroup): 'frozen' | 'running' | 'vanished' {
  try {
    return cgroup.isFrozen() ? 'frozen' : 'running';
  } catch {
    return 'vanished';
  }
}
