import { resolve } from 'node:path';
import { EnvdError } from '../../../base/errors.ts';
import type { User } from '../system/users.ts';
import { canonicalName, decodeName } from './names.ts';

/** System calls take paths of at most this many bytes. Source: PATH_MAX of linux/limits.h, which counts the NUL. */
export const MAX_PATH_BYTES = 4095;
/** Directories of a tree that is walked may be nested this deep, because each level holds descriptors. */
export const MAX_DEPTH = 256;

/** Throws `invalid_argument` for a path that is too long for any system call. `what` names the path in the error. */
export function requirePathLength(path: string, what = 'path'): void {
  if (path.length <= MAX_PATH_BYTES && decodeName(path).length <= MAX_PATH_BYTES) return;
  throw new EnvdError('invalid_argument', `${what} is longer than ${MAX_PATH_BYTES} bytes`);
}

/**
 * Returns the absolute, normalized form of a path from a client. An empty path means `defaultWorkdir` or, if that is
 * null, the user's home. `~`, `~/…` and relative paths are below the user's home. Throws `invalid_argument` for another
 * user's home (`~other`), for a NUL byte, and for more than 4,095 bytes.
 */
export function resolvePath(path: string, user: User, defaultWorkdir: string | null): string {
  requirePathLength(path);
  if (path.includes('\0')) throw new EnvdError('invalid_argument', 'path contains a NUL byte');
  return canonicalName(resolve('/', user.home, expandHome(path || (defaultWorkdir ?? ''), user)));
}

function expandHome(path: string, user: User): string {
  if (!path.startsWith('~')) return path;
  if (path !== '~' && !path.startsWith('~/')) {
    throw new EnvdError('invalid_argument', `cannot expand home of another user in path: '${path}'`);
  }
  return `${user.home}${path.slice(1)}`;
}
