import { constants as fsConstants, type Stats } from 'node:fs';
import { join, resolve } from 'node:path';
import { EnvdError, isSystemError } from '../../../base/errors.ts';
import { DEFAULT_PATH } from '../../../base/program/settings.ts';
import { fileTypeOf, readRawEntry } from '../files/entries.ts';
import { PathHandle } from '../files/place.ts';
import { type Lanes, NoAnswer } from '../lanes/lanes.ts';
import { decodeName } from '../paths/names.ts';
import { MAX_PATH_BYTES } from '../paths/paths.ts';
import { exhaustionOf, explain } from '../system/errno.ts';
import { native } from '../system/native.ts';
import type { User } from '../system/users.ts';

type Status = Pick<Stats, 'mode' | 'uid' | 'gid'>;

/** No attribute has this prefix, so none are read. */
const NO_ATTRIBUTES = 'none';
/** PATH may have at most this many elements, because each costs a look-up. */
const MAX_ELEMENTS = 1024;

/**
 * Returns the path of the file to execute for `command`. A command with a slash is a path, relative to `cwd`. For
 * others it is the first match in `path`, the PATH of the new process, that the user may execute. An empty element of
 * PATH means `cwd`. Throws `not_found` (ENOENT) or `invalid_argument` (EACCES), as execvp(3) decides, and
 * `invalid_argument` for a PATH of more than 1,024 elements, and `resource_exhausted` when it cannot look. It calls
 * `throwIfAborted` before each look-up, and throws what that throws.
 */
export async function findExecutable(
  command: string,
  path: string | undefined,
  cwd: string,
  user: User,
  lanes: Lanes,
  throwIfAborted = () => {},
): Promise<string> {
  if (command.includes('/')) return resolve(cwd, command);
  let denied = false;
  const directories = (path ?? DEFAULT_PATH).split(':', MAX_ELEMENTS + 1);
  if (directories.length > MAX_ELEMENTS)
    throw new EnvdError('invalid_argument', `PATH has more than ${MAX_ELEMENTS} elements`);
  for (const directory of directories) {
    throwIfAborted();
    // execvp(3) skips such an element, too.
    if (directory.length > MAX_PATH_BYTES) continue;
    const file = resolve(cwd, join(directory, command));
    const verdict = await inspect(file, user, lanes);
    if (verdict === 'executable') return file;
    denied ||= verdict === 'denied';
  }
  if (denied) throw new EnvdError('invalid_argument', `cannot start '${command}': EACCES: permission denied`);
  const reason = `ENOENT: executable file not found in PATH${lineHint(command)}`;
  throw new EnvdError('not_found', `cannot start '${command}': ${reason}`);
}

/** Returns a hint for a command that was not found and looks like a whole command line, or else an empty text. */
export function lineHint(command: string): string {
  const program = /^\s*(\S+)\s+\S/.exec(command)?.[1];
  if (program === undefined) return '';
  return ` (cmd is the program alone: put '${program}' into cmd and what follows into args)`;
}

/**
 * Throws `deadline_exceeded` when a path is on a file system that does not answer, because chdir(2) or execve(2) of the
 * new process would wait for it. It ignores all other errors, which those calls report. Call it only if
 * `mountsMayHang`. It does not see a link into the mounts of another namespace: the time limit of the start ends that.
 */
export async function assertAnswers(path: string, lanes: Lanes): Promise<void> {
  try {
    using place = await PathHandle.open(path, true, lanes);
    if (place.lane.mounts.length > 0) await place.status();
  } catch (error) {
    if (error instanceof NoAnswer || error instanceof EnvdError) throw explain(error, path);
  }
}

/** Tells whether any mounted file system may not answer. The check is cheap enough for each start. */
export function mountsMayHang(): boolean {
  return !native.allMountsAnswer();
}

async function inspect(file: string, user: User, lanes: Lanes): Promise<'executable' | 'denied' | 'absent'> {
  try {
    const status = await statusOf(file, lanes);
    if (!status) return 'absent';
    if (fileTypeOf(status.mode) !== fsConstants.S_IFREG) return 'denied';
    return mayExecute(status, user) ? 'executable' : 'denied';
  } catch (error) {
    if (error instanceof NoAnswer || exhaustionOf(error) !== null) throw explain(error, file);
    if (isSystemError(error, 'EACCES')) return 'denied';
    if (isSystemError(error)) return 'absent';
    throw error;
  }
}

async function statusOf(file: string, lanes: Lanes): Promise<Status | null> {
  const entry = await readRawEntry(decodeName(file), NO_ATTRIBUTES, lanes);
  if (fileTypeOf(entry.mode) !== fsConstants.S_IFLNK) return entry;
  using place = await PathHandle.open(file, true, lanes);
  return await place.status();
}

/** Checks permissions as execve(2) does: of the owner, else the group, else others. Root needs any execute bit. */
function mayExecute(status: Status, user: User): boolean {
  const { S_IXUSR, S_IXGRP, S_IXOTH } = fsConstants;
  if (user.uid === 0) return (status.mode & (S_IXUSR | S_IXGRP | S_IXOTH)) !== 0;
  if (status.uid === user.uid) return (status.mode & S_IXUSR) !== 0;
  if (user.groups.includes(status.gid)) return (status.mode & S_IXGRP) !== 0;
  return (status.mode & S_IXOTH) !== 0;
}
