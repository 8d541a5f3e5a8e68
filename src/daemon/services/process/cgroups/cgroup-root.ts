import { closeSync } from 'node:fs';
import { EnvdError, isSystemError } from '../../../../base/errors.ts';
import { lockCgroup } from '../../../linux/cgroups/cgroup-lock.ts';
import { Cgroup } from '../../../linux/cgroups/cgroup2.ts';

/** A later program of this process continues with this state. */
export interface CgroupRootState {
  readonly path: string;
  /** This descriptor holds the lock. */
  readonly lock: number;
}

/** Locks the cgroup above those of the workload. Otherwise two daemons would freeze and end each other's processes. */
export class CgroupRoot implements Disposable {
  readonly path: string;
  readonly #lock: number;

  private constructor(path: string, lock: number) {
    this.path = path;
    this.#lock = lock;
  }

  /** Returns the root of an earlier program of this process. The descriptor of that program keeps the lock. */
  static continueFrom({ path, lock }: CgroupRootState): CgroupRoot {
    return new CgroupRoot(path, lock);
  }

  /**
   * Makes and locks the first of `paths` that no other daemon has locked. Throws `failed_precondition` when all are
   * locked, and when one is not in a writable cgroup v2 hierarchy.
   */
  static take(paths: readonly string[]): CgroupRoot {
    for (const path of paths) {
      const lock = refuseUnwritable(path, () => lockCgroup(Cgroup.create(path)));
      if (lock !== null) return new CgroupRoot(path, lock);
    }
    const text = `cgroup root '${paths[0]}' is used by another daemon: set --cgroup-root to another cgroup`;
    throw new EnvdError('failed_precondition', text);
  }

  /** Returns the state for a later program of this process. The descriptor stays this object's. */
  get state(): CgroupRootState {
    return { path: this.path, lock: this.#lock };
  }

  [Symbol.dispose](): void {
    closeSync(this.#lock);
  }
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
