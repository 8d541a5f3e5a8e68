import type { Stats } from 'node:fs';
import { EnvdError, isSystemError } from '../../../../base/errors.ts';
import type { PathHandle } from '../../../linux/files/place.ts';
import type { User } from '../../../linux/system/users.ts';
import type { StagedFile } from './staged-file.ts';

/** Other processes may create and remove the destination between two steps, so this many attempts are made. */
export const MAX_ATTEMPTS = 16;

/**
 * Publishes the staged file atomically. If it replaces a file `previous`, it takes over its mode. Other hard links of
 * that file keep the old content. Throws `aborted` after 16 attempts.
 */
export async function replaceByStaged(
  staged: StagedFile,
  place: PathHandle,
  previous: Pick<Stats, 'mode'> | null,
  user: User,
): Promise<void> {
  if (previous) await staged.setMode(previous.mode & 0o777);
  let exists = previous !== null;
  for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
    try {
      await place.makeParents(user);
      return await (exists ? staged.replace(user) : staged.publish(user));
    } catch (error) {
      if (isSystemError(error, 'EEXIST')) exists = true;
      else if (isSystemError(error, 'ENOENT')) await place.renew();
      else throw error;
    }
  }
  throw contested(place.requested);
}

/** Returns the error of a path that other processes created and removed on each attempt. */
export function contested(path: string): EnvdError {
  return new EnvdError(
    'aborted',
    `path was created and removed by other processes on each of ${MAX_ATTEMPTS} attempts: '${path}'`,
  );
}
