import { resolve } from 'node:path';
import { EnvdError } from '../../base/errors.ts';
import { canonicalName } from './names.ts';
import type { User } from './users.ts';

/**
 * The absolute, normalised form of a path from a client. Empty: `defaultWorkdir`, or else the user's home.
 * `~`, `~/…` and relative paths: below the user's home.
 * Throws `invalid_argument` for another user's home (`~other`) and for a NUL byte.
 */
export function resolvePath(path: string, user: User, defaultWorkdir: string | null): string {
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
