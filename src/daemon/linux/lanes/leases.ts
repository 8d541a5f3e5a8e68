import { setTimeout } from 'node:timers/promises';
import { isSystemError } from '../../../base/errors.ts';
import { monotonicMs } from '../../../base/monotonic.ts';

/** Time between attempts to open a file with a lease, in milliseconds. */
const LEASE_RETRY_MS = 20;

/** Repeats an open(2) with O_NONBLOCK that fails with EAGAIN, which asks the holder of a lease to release it. */
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
