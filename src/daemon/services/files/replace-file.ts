import type { Stats } from 'node:fs';
import { dirname } from 'node:path';
import { EnvdError, isSystemError } from '../../../base/errors.ts';
import { ensureDirectory } from '../../os/paths.ts';
import type { User } from '../../os/users.ts';
import type { StagedFile } from './staged-file.ts';

const MAX_ATTEMPTS = 16;

/**
 * Puts the staged file at `path` in one step, in place of what was there; the mode of that is kept, its links are
 * not. `path` must be absolute, its last part no link.
 */
export async function replaceFile(
  staged: StagedFile,
  path: string,
  previous: Stats | null,
  user: User,
): Promise<void> {
  if (previous) await staged.setMode(previous.mode & 0o777);
  let exists = previous !== null;
  for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
    try {
      return await (exists ? staged.moveOver(path, user) : staged.publish(path, user));
    } catch (error) {
      if (isSystemError(error, 'EEXIST')) exists = true;
      else if (isSystemError(error, 'ENOENT')) await ensureDirectory(dirname(path), user);
      else throw error;
    }
  }
  throw new EnvdError('aborted', `path is created and removed all the time: '${path}'`);
}
