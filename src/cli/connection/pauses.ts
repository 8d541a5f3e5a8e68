import { setTimeout as delay } from 'node:timers/promises';
import type { Connection } from './connection.ts';
import { isPaused } from './failures.ts';

/** A paused sandbox is looked at again after these times, in milliseconds. */
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 5000;

/** Waits while the sandbox is paused, for any time. Throws a `Failure` if it has another reason not to answer. */
async function untilResumed({ http }: Connection): Promise<void> {
  for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(pause * 2, LONGEST_PAUSE_MS)) {
    await delay(pause);
    try {
      await http.text({ path: '/health' });
      return;
    } catch (error) {
      if (!isPaused(error)) throw error;
    }
  }
}

/**
 * Looks at a sandbox once more, as a command that goes on does. It does not wake one that was paused meanwhile: according to
 * `--when-paused` it waits, after it has called `onPaused`, or throws. Throws `Failure`.
 */
export async function lookAgain<T>(
  connection: Connection,
  look: () => Promise<T>,
  onPaused: () => void,
): Promise<T> {
  connection.keepAsleep();
  for (;;) {
    try {
      return await look();
    } catch (error) {
      const failure = await connection.failure(error);
      if (connection.whenPaused !== 'wait' || !isPaused(failure)) throw failure;
      onPaused();
      await untilResumed(connection);
    }
  }
}
