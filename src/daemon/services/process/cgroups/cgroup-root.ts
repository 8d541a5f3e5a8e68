import { closeSync } from 'node:fs';
import { EnvdError, isSystemError } from '../../../../base/errors.ts';
import { lockCgroup } from '../../../linux/cgroups/cgroup-lock.ts';
import { Cgroup } from '../../../linux/cgroups/cgroup2.ts';

/** What a later program of this process continues with. */
export interface CgroupRootState {
  readonly path: string;
  /** The descriptor that holds the lock. */
  readonly lock: number;
}

/** The cgroup above those of the workload. A daemon locks it: two would freeze, and end, each other's processes. */
export class CgroupRoot implements Disposable {
  readonly path: string;
  readonly #lock: number;

  private constructor(path: string, lock: number) {
    this.path = path;
    this.#lock = lock;
  }

  /** The root of an earlier program of this process, whose lock its descriptor keeps. */
  static continueFrom({ path, lock }: CgroupRootState): CgroupRoot {
    return new CgroupRoot(path, lock);
  }

  /**
   * Makes and locks the first of `paths` that no other daemon has locked. Throws `failed_precondition` when there is none,
   * and when one is not in a writable cgroup v2 hierarchy.
   */
  static take(paths: readonly string[]): CgroupRoot {
    for (const path of paths) {
      const lock = refuseUnwritable(path, () => lockCgroup(Cgroup.create(path)));
      if (lock !== null) return new CgroupRoot(path, lock);
    }
    const text = `cgroup root '${paths[0]}' is used by another daemon: set --cgroup-root to another cgroup`;
    throw new EnvdError('failed_precondition', text);
  }

  /** For a later program of this process; the descriptor stays this object's. */
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
