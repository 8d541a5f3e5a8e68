import { lchown, mkdir, stat } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { EnvdError, isSystemError } from '../base/errors.ts';
import type { User } from './users.ts';

/**
 * The absolute, normalised form of a path that a client sent. Empty: `defaultWorkdir`, else the home.
 * `~`, `~/…` and relative paths: below the user's home.
 * Throws `invalid_argument` for another user's home (`~other`) and for a NUL byte.
 */
export function resolvePath(path: string, user: User, defaultWorkdir: string | null): string {
  if (path.includes('\0')) throw new EnvdError('invalid_argument', 'path contains a NUL byte');
  return resolve('/', user.home, expandHome(path || (defaultWorkdir ?? ''), user));
}

function expandHome(path: string, user: User): string {
  if (!path.startsWith('~')) return path;
  if (path !== '~' && !path.startsWith('~/')) {
    throw new EnvdError('invalid_argument', `cannot expand home of another user in path: '${path}'`);
  }
  return `${user.home}${path.slice(1)}`;
}

/**
 * Makes `path` and its missing parents, each with mode 0755 and owned by the user; what exists stays as it is.
 * Returns whether `path` itself was made. Throws `invalid_argument` when a part of it is no directory.
 */
export async function ensureDirectory(path: string, user: User): Promise<boolean> {
  try {
    return await makeDirectory(path, user);
  } catch (error) {
    if (!isSystemError(error, 'ENOENT') || dirname(path) === path) throw error;
  }
  await ensureDirectory(dirname(path), user);
  // Missing still: removed meanwhile, or a file system that makes no directories, such as /proc.
  return makeDirectory(path, user);
}

async function makeDirectory(path: string, user: User): Promise<boolean> {
  try {
    await mkdir(path, { mode: 0o755 });
  } catch (error) {
    if (!isSystemError(error, 'EEXIST', 'ENOTDIR')) throw error;
    const status = await stat(path).catch(() => null);
    if (status?.isDirectory()) return false;
    throw new EnvdError('invalid_argument', `path is not a directory: '${path}'`, { cause: error });
  }
  await giveTo(path, user);
  return true;
}

/** File systems without owners, or whose server keeps them to itself, answer EPERM or ENOTSUP. */
async function giveTo(path: string, user: User): Promise<void> {
  try {
    // Not chown: the user may have put a link there by now.
    await lchown(path, user.uid, user.gid);
  } catch (error) {
    if (!isSystemError(error, 'EPERM', 'ENOTSUP')) throw error;
  }
}
