import { EnvdError, isSystemError } from '../../../base/errors.ts';
import { explain } from '../../os/errno.ts';
import { removing } from '../../os/lane.ts';
import type { Lanes } from '../../os/lanes.ts';
import { native } from '../../os/native.ts';

/**
 * Removes `path` and everything below it, without following symbolic links. A missing path is not an error. Throws
 * `invalid_argument` for `/`.
 */
export async function remove(path: string, lanes: Lanes): Promise<void> {
  if (path === '/') throw new EnvdError('invalid_argument', "cannot remove the root directory: '/'");
  try {
    const ask = () => native.readEntry(Buffer.from(path), '');
    await lanes.find(() => native.removeTree(path), { base: removing(path), ask });
  } catch (error) {
    // ENOTDIR: a parent is a file, so the path does not exist.
    if (!isSystemError(error, 'ENOTDIR')) throw explain(error, path);
  }
}
