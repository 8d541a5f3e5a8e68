import { mkdir, statfs } from 'node:fs/promises';
import { dirname } from 'node:path';
import { EnvdError, isSystemError, messageOf } from '../errors.ts';

/** The types of file systems in which nothing can be made, of statfs(2). */
const KERNELS_OWN = new Map([
  [0x9fa0, 'proc'],
  [0x62656572, 'sysfs'],
  [0x27e0eb, 'cgroup'],
  [0x63677270, 'cgroup2'],
]);

/**
 * Makes a directory with the mode 0700, and those above it. Throws `invalid_argument` when it cannot be made, or is where the kernel has
 * files of its own: there Node's recursive mkdir() never ends.
 */
export async function makePrivateDirectory(path: string): Promise<void> {
  const type = KERNELS_OWN.get(await typeOfNearest(path));
  if (type !== undefined)
    throw new EnvdError(
      'invalid_argument',
      `'${path}' is in a file system of the kernel (${type}): name another one`,
    );
  try {
    await mkdir(path, { recursive: true, mode: 0o700 });
  } catch (error) {
    throw new EnvdError('invalid_argument', `cannot make '${path}': ${messageOf(error)}`, { cause: error });
  }
}

/** The type of the file system that has the path, or would have it. */
async function typeOfNearest(path: string): Promise<number> {
  for (let nearest = path; ; nearest = dirname(nearest)) {
    try {
      return (await statfs(nearest)).type;
    } catch (error) {
      if (!isSystemError(error, 'ENOENT') || nearest === dirname(nearest))
        throw new EnvdError('invalid_argument', `cannot use '${path}': ${messageOf(error)}`, {
          cause: error,
        });
    }
  }
}
