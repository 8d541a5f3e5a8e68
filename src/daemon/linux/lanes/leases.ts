import { setTimeout } from 'node:timers/promises';
import { isSystemError } from '../../../base/errors.ts';
import { monotonicMs } from '../../../base/monotonic.ts';

/** Attempts to open a file with a lease are this far apart, in milliseconds. */
const LEASE_RETRY_MS = 20;

/**
 * Repeats an open(2) with O_NONBLOCK while it fails with EAGAIN. The first attempt makes the kernel ask the holder of a
 * lease to release it. Throws EAGAIN after `limitMs`.
 */
export async function untilReleased<T>(limitMs: number, open: () => Promise<T>): Promise<T> {
  for (const end = monotonicMs() + limitMs; ; ) {
    try {
      return await open();
    } catch (error) {
      if (!isSystemError(error, 'EAGAIN') || monotonicMs() > end) throw error;
      await setTimeout(LEASE_RETRY_MS);
    }
  }
}
