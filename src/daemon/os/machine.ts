// What the daemon sets for the guest as a whole: its clock, and whether a file system takes writes.
import { EnvdError, isSystemError } from '../../base/errors.ts';
import { native } from './native.ts';

const SECOND = 1_000_000_000n;

/** The guest's wall clock, CLOCK_REALTIME, in nanoseconds since the epoch. */
export const wallClock = {
  /** Exact to the millisecond. */
  nowNs(): bigint {
    return BigInt(Date.now()) * 1_000_000n;
  },

  /** Throws EPERM where the daemon may not set the clock, EINVAL for a time before the epoch. */
  setNs(timeNs: bigint): void {
    native.setRealtimeClock(timeNs / SECOND, Number(timeNs % SECOND));
  },
};

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
