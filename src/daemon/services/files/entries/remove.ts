import { EnvdError, isSystemError } from '../../../../base/errors.ts';
import { removeTree } from '../../../linux/files/remove-tree.ts';
import { removing } from '../../../linux/lanes/lane.ts';
import type { Lanes } from '../../../linux/lanes/lanes.ts';
import { bytePath } from '../../../linux/paths/byte-path.ts';
import { decodeName } from '../../../linux/paths/names.ts';
import { explain } from '../../../linux/system/errno.ts';
import { native } from '../../../linux/system/native.ts';

/**
 * Removes `path` and everything below it, without following symbolic links. A missing path is not an error. When
 * `signal` aborts, what is left stays. Throws `invalid_argument` for `/`.
 */
export async function removeAt(path: string, lanes: Lanes, signal: AbortSignal): Promise<void> {
  if (path === '/') throw new EnvdError('invalid_argument', "cannot remove the root directory: '/'");
  try {
    const name = decodeName(path);
    const ask = () => native.readEntry(name, '');
    const base = removing(bytePath(name));
    await removeTree(
      async () => (await lanes.find(() => native.removeTree(name), { base, ask, long: true })).value,
      signal,
    );
  } catch (error) {
    // ENOTDIR means that a parent is a file, so the path does not exist.
    if (!isSystemError(error, 'ENOTDIR')) throw explain(error, path);
  }
}
