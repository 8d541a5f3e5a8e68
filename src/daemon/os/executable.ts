import { constants as fsConstants, type Stats } from 'node:fs';
import { stat } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { EnvdError, isSystemError } from '../../base/errors.ts';
import type { User } from './users.ts';

const DEFAULT_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/**
 * The file to execute for `command`: with a slash, that path (relative to `cwd`); otherwise the first match in `path`,
 * the PATH of the new process, that the user may execute. An empty element of PATH is `cwd`. Throws `not_found`
 * (ENOENT) or `invalid_argument` (EACCES), as execvp(3) decides.
 */
export async function findExecutable(
  command: string,
  path: string | undefined,
  cwd: string,
  user: User,
): Promise<string> {
  if (command.includes('/')) return resolve(cwd, command);
  let denied = false;
  for (const directory of (path ?? DEFAULT_PATH).split(':')) {
    const file = resolve(cwd, join(directory, command));
    const verdict = await inspect(file, user);
    if (verdict === 'executable') return file;
    denied ||= verdict === 'denied';
  }
  if (denied) throw new EnvdError('invalid_argument', `cannot start '${command}': EACCES: permission denied`);
  const reason = `ENOENT: executable file not found in PATH${lineHint(command)}`;
  throw new EnvdError('not_found', `cannot start '${command}': ${reason}`);
}

/** A hint for a command that was not found and looks like a whole command line; otherwise empty. */
export function lineHint(command: string): string {
  const program = /^\s*(\S+)\s+\S/.exec(command)?.[1];
  if (program === undefined) return '';
  return ` (cmd is the program alone: put '${program}' into cmd and what follows into args)`;
}

async function inspect(file: string, user: User): Promise<'executable' | 'denied' | 'absent'> {
  try {
    const status = await stat(file);
    if (!status.isFile()) return 'denied';
    return mayExecute(status, user) ? 'executable' : 'denied';
  } catch (error) {
    if (isSystemError(error, 'EACCES')) return 'denied';
    if (isSystemError(error)) return 'absent';
    throw error;
  }
}

/** The permission check of execve(2): owner, else group, else others; root needs any execute bit. */
function mayExecute(status: Stats, user: User): boolean {
  const { S_IXUSR, S_IXGRP, S_IXOTH } = fsConstants;
  if (user.uid === 0) return (status.mode & (S_IXUSR | S_IXGRP | S_IXOTH)) !== 0;
  if (status.uid === user.uid) return (status.mode & S_IXUSR) !== 0;
  if (user.groups.includes(status.gid)) return (status.mode & S_IXGRP) !== 0;
  return (status.mode & S_IXOTH) !== 0;
}
