import { EnvdError, isSystemError } from '../../../base/errors.ts';
import { explain } from '../../os/errno.ts';
import { native } from '../../os/native.ts';

/**
 * Removes what is at `path` and everything below it, links themselves and never what they lead to. Nothing
 * there is success. Throws `invalid_argument` for `/`.
 */
export async function remove(path: string): Promise<void> {
  if (path === '/') throw new EnvdError('invalid_argument', "cannot remove the root directory: '/'");
  try {
    await native.removeTree(path);
  } catch (error) {
    // Below a file there is nothing.
    if (!isSystemError(error, 'ENOTDIR')) throw explain(error, path);
  }
}
