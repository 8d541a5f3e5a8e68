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
