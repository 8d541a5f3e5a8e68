import { EnvdError } from '../../../base/errors.ts';
import { about } from '../../os/errno.ts';
import { ensureDirectory } from '../../os/paths.ts';
import type { User } from '../../os/users.ts';
import type { Entry, EntrySource } from './entry.ts';
import { stat } from './stat.ts';

/**
 * Makes a directory and its missing parents, the user's and with mode 0755. Throws `already_exists` when the
 * directory, or a link to one, is there, `invalid_argument` when something else is.
 */
export async function makeDir(path: string, user: User, entries: EntrySource): Promise<Entry> {
  const made = await about(path, () => ensureDirectory(path, user));
  if (!made) throw new EnvdError('already_exists', `directory already exists: '${path}'`);
  return stat(path, entries);
}
