import { setTimeout as sleep } from 'node:timers/promises';
import { EnvdError } from '../../../base/errors.ts';
import { type Cgroup, hasVanished } from '../../os/cgroup2.ts';
import type { Candidate } from './candidates.ts';

export interface Survey {
  readonly visited: number;
  readonly allowlisted: number;
  readonly truncated: boolean;
  readonly preFrozen: number;
  /** What is to be frozen. */
  readonly targets: readonly Cgroup[];
}

/**
 * Sorts out at most `maxCgroups` candidates, without changing anything. A cgroup that has been asked to freeze is
 * the guest's doing, unless it `isOurs`. One that vanishes meanwhile does not count.
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

/** Null when the cgroup is gone. */
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

/** Asks all to freeze; returns those that the kernel refused. One that has vanished is not among them. */
export function freezeAll(cgroups: Iterable<Cgroup>): CgroupFailure[] {
  return failuresOf(cgroups, (cgroup) => cgroup.freeze());
}

/** Thaws all, whatever happens to one of them; returns those that failed. One that has vanished did not. */
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
  /** Still not frozen when the wait was over. */
  readonly pending: readonly Cgroup[];
  readonly unobservable: number;
}

/** Polling beats waiting for cgroup.events with epoll: a hundred processes stop within 10 ms. */
const INTERVAL_MS = 1;

/**
 * Reads the cgroups back, at once and then every millisecond, until all are frozen or `maxWaitMs` have passed.
 * Throws `aborted` when `signal` ends the wait; that undoes nothing.
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
    throw new EnvdError('aborted', 'freeze was not waited for to the end', { cause: error });
  }
}

/**
 * What has become of a freeze by the time it is undone, for the platform's eyes.
 * requested = stillFrozen + notFrozen + vanished.
 */
export interface FreezeAudit {
  /** Cgroups that were asked to freeze and have not been thawed since. */
  readonly requested: number;
  readonly stillFrozen: number;
  /** Thawed by somebody else, or never frozen because a process could not be stopped. */
  readonly notFrozen: number;
  /** Gone, or not to be read. */
  readonly vanished: number;
  /** Of those still frozen: not seen frozen yet when the freeze was answered. */
  readonly late: number;
}

/** `late`: paths of those that were not seen frozen by the end of their freeze. */
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

/** `vanished`: gone, or not to be read. */
function stateOf(cgroup: Cgroup): 'frozen' | 'running' | 'vanished' {
  try {
    return cgroup.isFrozen() ? 'frozen' : 'running';
  } catch {
    return 'vanished';
  }
}
