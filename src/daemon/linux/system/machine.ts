import { closeSync, constants, openSync, writeSync } from 'node:fs';
import { release } from 'node:os';
import { EnvdError, isSystemError } from '../../../base/errors.ts';
import { native } from './native.ts';

const SECOND = 1_000_000_000n;

/** Returns whether the kernel's version is this one or a later one. */
export function kernelIsSince(major: number, minor: number): boolean {
  const [ownMajor = 0, ownMinor = 0] = release().split('.').map(Number);
  return ownMajor > major || (ownMajor === major && ownMinor >= minor);
}

/** The wall clock of the guest, in nanoseconds since the epoch. */
export class WallClock {
  /** Returns the time, exact to the millisecond. */
  nowNs(): bigint {
    return BigInt(Date.now()) * 1_000_000n;
  }

  /** Sets the time. Throws EPERM without CAP_SYS_TIME, and EINVAL for a time before the epoch. */
  setNs(timeNs: bigint): void {
    native.setRealtimeClock(Number(timeNs / SECOND), Number(timeNs % SECOND));
  }
}

/**
 * Mixes `seed` into the kernel's random generator, whose state all clones of a snapshot share, and makes the generator use it
 * at once. Throws EPERM without CAP_SYS_ADMIN, after the seed was mixed in. Source: random(4).
 */
export function reseedRandom(seed: string): void {
  const device = openSync('/dev/urandom', constants.O_WRONLY);
  try {
    writeSync(device, seed);
    native.reseedRandom(device);
  } finally {
    closeSync(device);
  }
}

/**
 * Syncs and freezes the file system of the directory `path` (FIFREEZE), unless it is frozen already. Reads succeed then, and
 * writes block until the thaw. Neither the freeze nor the thaw uses a pool thread, because writes may block all of these.
 * Throws `failed_precondition` where the file system cannot be frozen, and EPERM without CAP_SYS_ADMIN.
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

/** Thaws the file system (FITHAW), unless it is not frozen. Throws EPERM without CAP_SYS_ADMIN. */
export async function thawFilesystem(path: string): Promise<void> {
  try {
    await native.setFilesystemFrozen(path, false);
  } catch (error) {
    if (!isSystemError(error, 'EINVAL')) throw error;
  }
}
