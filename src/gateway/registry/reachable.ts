import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import { EnvdError, messageOf } from '../../base/errors.ts';
import { monotonicMs } from '../../base/monotonic.ts';

/** The bounds of the time between two attempts, in ms. */
const FIRST_RETRY_MS = 50;
const LONGEST_RETRY_MS = 2000;

/**
 * Opens a registry that may be slower to start than the gateway: again while that throws `unavailable`, for `waitMs`. Then throws
 * the last error.
 *
 * @param signal aborts the waiting
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
      logger.warn({ reason, seconds: Math.round(left / 1000) }, 'the start waits for the registry');
      await delay(Math.min(delayMs, left), undefined, { signal });
    }
  }
}
