import { EnvdError, isSystemError } from '../../../../base/errors.ts';
import { PathHandle } from '../../../linux/files/place.ts';
import type { Lanes } from '../../../linux/lanes/lanes.ts';
import { explaining } from '../../../linux/system/errno.ts';
import type { User } from '../../../linux/system/users.ts';
import type { Entry, EntrySource } from './entry.ts';
import { stat } from './stat.ts';

/**
 * Creates a directory and its missing parents, owned by `user`, with mode 0755. Throws `already_exists` if the path is
 * a directory or a symbolic link to one, and `invalid_argument` if it is anything else.
 */
export async function makeDir(path: string, user: User, entries: EntrySource): Promise<Entry> {
  if (!(await explaining(path, () => make(path, user, entries.lanes)))) {
    throw new EnvdError('already_exists', `directory already exists: '${path}'`);
  }
  return stat(path, entries);
}

/** Returns false when the directory exists already. */
async function make(path: string, user: User, lanes: Lanes): Promise<boolean> {
  try {
    using place = await PathHandle.open(path, false, lanes);
    return await place.makeDirectory(user);
  } catch (error) {
    if (!isSystemError(error, 'ENOTDIR')) throw error;
    if (await isDirectory(path, lanes)) return false;
    throw new EnvdError('invalid_argument', `path is not a directory: '${path}'`, { cause: error });
  }
}

async function isDirectory(path: string, lanes: Lanes): Promise<boolean> {
  try {
    using place = await PathHandle.open(path, true, lanes);
    return (await place.status())?.isDirectory() ?? false;
  } catch (error) {
    if (isSystemError(error, 'ETIMEDOUT')) throw error;
    return false;
  }
}
