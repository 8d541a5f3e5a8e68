import { EnvdError, isSystemError } from '../../../base/errors.ts';
import { bytePath } from '../../os/byte-path.ts';
import { explain } from '../../os/errno.ts';
import { removing } from '../../os/lane.ts';
import type { Lanes } from '../../os/lanes.ts';
import { decodeName } from '../../os/names.ts';
import { native } from '../../os/native.ts';
import { removeTree } from '../../os/remove-tree.ts';

/**
 * Removes `path` and everything below it, without following symbolic links. A missing path is not an error. When `signal`
 * aborts, what is left stays. Throws `invalid_argument` for `/`.
 */
export async function remove(path: string, lanes: Lanes, signal: AbortSignal): Promise<void> {
  if (path === '/') throw new EnvdError('invalid_argument', "cannot remove the root directory: '/'");
  try {
    const name = decodeName(path);
    const ask = () => native.readEntry(name, '');
    const base = removing(bytePath(name));
    await removeTree(
      async () => (await lanes.find(() => native.removeTree(name), { base, ask })).value,
      signal,
    );
  } catch (error) {
    // ENOTDIR: a parent is a file, so the path does not exist.
    if (!isSystemError(error, 'ENOTDIR')) throw explain(error, path);
  }
}
