import { inspect } from 'node:util';

/** Between two questions. */
const INTERVAL_MS = 5;
/** Something hangs when it has not come by then. */
const LIMIT_MS = 20_000;

/**
 * Asks until the answer holds, and resolves with it: for what comes without an event. Throws, with `what` was waited
 * for and the last answer, when it has not come after 20 s.
 */
export async function until<T>(
  what: string,
  ask: () => T | Promise<T>,
  holds: (answer: T) => boolean = Boolean,
): Promise<NonNullable<T>> {
  const end = performance.now() + LIMIT_MS;
  for (;;) {
    const answer = await ask();
    if (answer != null && holds(answer)) return answer;
    if (performance.now() > end) {
      throw new Error(`waited ${LIMIT_MS} ms until ${what}; the last answer was ${inspect(answer)}`);
    }
    await new Promise((resolve) => setTimeout(resolve, INTERVAL_MS));
  }
}
