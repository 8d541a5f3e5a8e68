import { chmodSync, closeSync, constants, openSync } from 'node:fs';
import { join } from 'node:path';
import { isSystemError } from '../../base/errors.ts';
import type { Cgroup } from './cgroup2.ts';
import { native } from './native.ts';

/**
 * Locks a cgroup for this program. Returns the descriptor that holds the lock, until it and its duplicates are closed, as they
 * are when the program ends in whatever way; null while another program has locked the cgroup.
 */
export function lockCgroup(cgroup: Cgroup): number | null {
  const descriptor = openSync(fileToLock(cgroup), constants.O_WRONLY);
  try {
    native.lockFile(descriptor);
    return descriptor;
  } catch (error) {
    closeSync(descriptor);
    if (isSystemError(error, 'EAGAIN')) return null;
    throw error;
  }
}

/** One that other users cannot open: who can open a file can lock it. Only `cgroup.kill` (Linux 5.14) is so by itself. */
function fileToLock(cgroup: Cgroup): string {
  if (cgroup.has('cgroup.kill')) return join(cgroup.path, 'cgroup.kill');
  const file = join(cgroup.path, 'cgroup.max.depth');
  chmodSync(file, 0o600);
  return file;
}
