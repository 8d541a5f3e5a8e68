import { chmodSync, closeSync, constants, openSync } from 'node:fs';
import { join } from 'node:path';
import { isSystemError } from '../../../base/errors.ts';
import { native } from '../system/native.ts';
import type { Cgroup } from './cgroup2.ts';

/**
 * Locks a cgroup for this program. Returns the descriptor that holds the lock, until it and its duplicates are closed, as they
 * are when the program ends in whatever way; null while another program has locked the cgroup.
 */
export function lockCgroup(cgroup: Cgroup): number | null {
  // Only `cgroup.kill` (Linux 5.14) is never open to other users, not even for a moment: who can open a file can lock it.
  const file = join(cgroup.path, cgroup.has('cgroup.kill') ? 'cgroup.kill' : 'cgroup.max.depth');
  chmodSync(file, 0o600);
  // Not for writing: the mount could not become read-only then.
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
