// System-wide settings of the guest: the clock, the random generator, and freezing of file systems.
import { closeSync, constants, openSync, writeSync } from 'node:fs';
import { release } from 'node:os';
import { EnvdError, isSystemError } from '../../../base/errors.ts';
import { native } from './native.ts';

const SECOND = 1_000_000_000n;

/** Whether the kernel's version is this one or later. */
export function kernelIsSince(major: number, minor: number): boolean {
  const [ownMajor = 0, ownMinor = 0] = release().split('.').map(Number);
  return ownMajor > major || (ownMajor === major && ownMinor >= minor);
}

/** A wall clock, in nanoseconds since the epoch. */
export class WallClock {
  readonly #set: (seconds: number, nanoseconds: number) => void;

  /** `set`: what sets it; that of the guest, CLOCK_REALTIME, throws EPERM without CAP_SYS_TIME, EINVAL for a time before the epoch. */
  constructor(set = native.setRealtimeClock) {
    this.#set = set;
  }

  /** The guest's, exact to the millisecond. */
  nowNs(): bigint {
    return BigInt(Date.now()) * 1_000_000n;
  }

  /** Throws the errors of what sets it. */
  setNs(timeNs: bigint): void {
    this.#set(Number(timeNs / SECOND), Number(timeNs % SECOND));
  }
}

/**
 * Mixes `seed` into the kernel's random generator, which all clones of a snapshot share, and makes the generator use it at
 * once. The seed is mixed in, too, where the latter throws EPERM: without CAP_SYS_ADMIN. Source: random(4).
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
 * Syncs and freezes the file system of the directory `path` (FIFREEZE): reads succeed, writes block until the thaw.
 * Already frozen is not an error. Neither this nor the thaw uses a pool thread. Throws `failed_precondition` where the
 * file system does not support it, EPERM without CAP_SYS_ADMIN.
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

/** Thaws the file system (FITHAW); not frozen is not an error. Throws EPERM without CAP_SYS_ADMIN. */
export async function thawFilesystem(path: string): Promise<void> {
  try {
    await native.setFilesystemFrozen(path, false);
  } catch (error) {
    if (!isSystemError(error, 'EINVAL')) throw error;
  }
}
