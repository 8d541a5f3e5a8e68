import { EnvdError, isSystemError } from '../../base/errors.ts';
import { native } from './native.ts';

/**
 * Freezes the file system that the directory `path` is on, once it has written everything to its device: it can be
 * read, and whoever writes to it sleeps until the thaw. One that is frozen already stays so. Neither this nor the
 * thaw needs a thread of the pool. Throws `failed_precondition` where it cannot be frozen, EPERM without the right.
 */
export async function freezeFilesystem(path: string): Promise<void> {
  try {
    await native.setFilesystemFrozen(path, true);
  } catch (error) {
    if (isSystemError(error, 'EBUSY')) return;
    if (!isSystemError(error, 'ENOTSUP')) throw error;
    throw new EnvdError('failed_precondition', `the file system of '${path}' cannot be frozen`, {
      cause: error,
    });
  }
}

/** Lets all go on that waits to write; one that is not frozen is no error. Throws EPERM without the right. */
export async function thawFilesystem(path: string): Promise<void> {
  try {
    await native.setFilesystemFrozen(path, false);
  } catch (error) {
    if (!isSystemError(error, 'EINVAL')) throw error;
  }
}
