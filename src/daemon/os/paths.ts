import { constants } from 'node:fs';
import { mkdir, open, readdir, stat } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { EnvdError, isSystemError } from '../../base/errors.ts';
import { dropSetIdBits } from './set-id-bits.ts';
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
  await giveNewDirectory(path, user);
  return true;
}

/**
 * Gives the user a directory that has just been made, if that is what is at `path` still: the owner of its parent can
 * have put something else there. File systems without owners, or whose server keeps them to itself, answer EPERM or
 * ENOTSUP.
 */
async function giveNewDirectory(path: string, user: User): Promise<void> {
  const { O_RDONLY, O_DIRECTORY, O_NOFOLLOW } = constants;
  const directory = await open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  try {
    const { uid } = await directory.stat();
    const entries = await readdir(`/proc/self/fd/${directory.fd}`);
    if (uid !== process.geteuid?.() || entries.length > 0) return;
    await directory.chown(user.uid, user.gid);
    // The kernel hands set-group-ID down from the parent.
    await dropSetIdBits(directory);
  } catch (error) {
    if (!isSystemError(error, 'EPERM', 'ENOTSUP')) throw error;
  } finally {
    await directory.close();
  }
}
