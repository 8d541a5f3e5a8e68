import { inspect } from 'node:util';

/** The interval between polls. */
const INTERVAL_MS = 5;
/** The time limit, after which something is taken to hang. */
const LIMIT_MS = 120_000;

/**
 * Polls until `holds` accepts the result, and resolves with it: for conditions without an event. Throws after `limitMs`,
 * with `what` was waited for and the last result.
 */
export async function until<T>(
  what: string,
  ask: () => T | Promise<T>,
  holds: (answer: T) => boolean = Boolean,
  limitMs = LIMIT_MS,
): Promise<NonNullable<T>> {
  const end = performance.now() + limitMs;
  for (;;) {
    const answer = await ask();
    if (answer != null && holds(answer)) return answer;
    if (performance.now() > end) {
      throw new Error(`waited ${limitMs} ms until ${what}; the last answer was ${inspect(answer)}`);
    }
    await new Promise((resolve) => setTimeout(resolve, INTERVAL_MS));
  }
}
