import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import { EnvdError, messageOf } from '../../base/errors.ts';
import { monotonicMs } from '../../base/monotonic.ts';

/** The time between two attempts has these bounds, in ms. */
const FIRST_RETRY_MS = 50;
const LONGEST_RETRY_MS = 2000;

/**
 * Opens a registry that may start later than the gateway. Tries again while `open` throws `unavailable`, until `waitMs` have
 * passed. Then throws the last error. Throws the reason of `signal` when that aborts the wait.
 */
export async function untilReachable<T>(
  open: () => Promise<T>,
  waitMs: number,
  logger: Logger,
  signal: AbortSignal,
): Promise<T> {
  const end = monotonicMs() + waitMs;
  for (let delayMs = FIRST_RETRY_MS; ; delayMs = Math.min(2 * delayMs, LONGEST_RETRY_MS)) {
    try {
      return await open();
    } catch (error) {
      const left = end - monotonicMs();
      if (!(error instanceof EnvdError) || error.kind !== 'unavailable' || left <= 0) throw error;
      const reason = messageOf(error);
      logger.warn(
        { reason, seconds: Math.round(left / 1000) },
        'the registry is not available yet: the start tries again',
      );
      await delay(Math.min(delayMs, left), undefined, { signal });
    }
  }
}
