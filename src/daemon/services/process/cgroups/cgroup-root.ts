import { closeSync } from 'node:fs';
import { EnvdError, isSystemError } from '../../../../base/errors.ts';
import { lockCgroup } from '../../../linux/cgroups/cgroup-lock.ts';
import { Cgroup } from '../../../linux/cgroups/cgroup2.ts';

/** The cgroup above those of the workload, which a later program of this process continues with. */
export interface CgroupRoot {
  readonly path: string;
  /** This descriptor holds the lock. Without it two daemons would freeze and end each other's processes. */
  readonly lock: number;
}

/**
 * Makes and locks the first of `paths` that no other daemon has locked. Throws `failed_precondition` when all are
 * locked, and when one is not in a writable cgroup v2 hierarchy.
 */
export function takeRoot(paths: readonly string[]): CgroupRoot {
  for (const path of paths) {
    const lock = refuseUnwritable(path, () => lockCgroup(Cgroup.create(path)));
    if (lock !== null) return { path, lock };
  }
  const text = `cgroup root '${paths[0]}' is used by another daemon: set --cgroup-root to another cgroup`;
  throw new EnvdError('failed_precondition', text);
}

export function unlockRoot({ lock }: CgroupRoot): void {
  closeSync(lock);
}

/** Runs `action`, and throws `failed_precondition` when it fails because the cgroups at `root` cannot be written. */
export function refuseUnwritable<T>(root: string, action: () => T): T {
  try {
    return action();
  } catch (error) {
    if (!isSystemError(error, 'EROFS', 'EACCES', 'EPERM')) throw error;
    throw new EnvdError('failed_precondition', `cgroup root is not writable: '${root}'`, { cause: error });
  }
}
