import { rmdir } from 'node:fs/promises';
import { isSystemError } from '../../../base/errors.ts';

/** Removes cgroups without blocking the event loop; resolves with those that still have processes or children. */
export async function removeCgroups(paths: readonly string[]): Promise<readonly string[]> {
  const left = await Promise.all(paths.map(async (path) => ((await isRemoved(path)) ? [] : [path])));
  return left.flat();
}

async function isRemoved(path: string): Promise<boolean> {
  return rmdir(path).then(
    () => true,
    (error) => isSystemError(error, 'ENOENT'),
  );
}
