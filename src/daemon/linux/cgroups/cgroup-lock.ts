import { chmodSync, closeSync, constants, openSync } from 'node:fs';
import { join } from 'node:path';
import { isSystemError } from '../../../base/errors.ts';
import { native } from '../system/native.ts';
import type { Cgroup } from './cgroup2.ts';

/**
 * Locks a cgroup for this program. Returns a descriptor that holds the lock until it and its duplicates are closed, which the
 * kernel does when the program ends. Returns null while another program has locked the cgroup.
 */
export function lockCgroup(cgroup: Cgroup): number | null {
  // Whoever can open a file can lock it, and only `cgroup.kill` (Linux 5.14) never allows other users to open it.
  const file = join(cgroup.path, cgroup.has('cgroup.kill') ? 'cgroup.kill' : 'cgroup.max.depth');
  chmodSync(file, 0o600);
  // A descriptor for writing would keep the mount from becoming read-only.
  const descriptor = openSync(file, constants.O_RDONLY);
  try {
    native.lockFile(descriptor);
    return descriptor;
  } catch (error) {
    closeSync(descriptor);
    if (isSystemError(error, 'EAGAIN')) return null;
    throw error;
  }
}
