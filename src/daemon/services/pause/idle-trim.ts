import type { Collapser } from './collapse.ts';

/** How often the daemon checks whether it is idle, in milliseconds. */
const INTERVAL_MS = 5000;
/**
 * The daemon counts as idle when its main thread has taken at most `IDLE_MS` of CPU time before each of `IDLE_CHECKS` checks
 * in a row. The activity of the event loop is no measure, because on a host that is short of CPUs most of it is waiting for
 * one.
 */
const IDLE_MS = 100;
const IDLE_CHECKS = 2;
/** After how much CPU time of the main thread a collection pays, in milliseconds. */
const WORTH_MS = 1000;

type Trimmed = Pick<Collapser, 'trim'>;

/**
 * Gives memory back when the daemon was idle for some 10 s, because V8 by itself keeps what it had at its busiest
 * (docs/decisions/014-memory.md). A busy daemon pays nothing. One that does little is trimmed rarely: after each second of
 * work.
 */
export class IdleTrim implements Disposable {
  readonly #collapser: Trimmed;
  readonly #isPaused: () => boolean;
  readonly #timer: NodeJS.Timeout;
  #previous = workedMs();
  #idleChecks = 0;
  #isFirst = true;
  /** The CPU time since the last trim, in milliseconds. The start alone is worth a trim. */
  #workMs = WORTH_MS;

  /** Nothing is done or counted while `isPaused`, because a pause is about to begin, or a resume has just been. */
  constructor(collapser: Trimmed, isPaused: () => boolean) {
    this.#collapser = collapser;
    this.#isPaused = isPaused;
    this.#timer = setInterval(this.#check, INTERVAL_MS).unref();
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }

  readonly #check = (): void => {
    const now = workedMs();
    const worked = now - this.#previous;
    this.#previous = now;
    if (this.#isPaused()) return;
    this.#workMs += worked;
    this.#idleChecks = worked <= IDLE_MS ? this.#idleChecks + 1 : 0;
    if (this.#idleChecks < IDLE_CHECKS || this.#workMs < WORTH_MS) return;
    this.#workMs = 0;
    // Most code of the start never runs again, so only the first trim drops code. The code of calls is still needed.
    this.#collapser.trim(this.#isFirst);
    this.#isFirst = false;
  };
}

/** Returns the CPU time of the main thread so far, in milliseconds. */
function workedMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}
