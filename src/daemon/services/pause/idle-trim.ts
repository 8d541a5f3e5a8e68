import type { Collapser } from './collapse.ts';

/** Interval of checks, in milliseconds. */
const INTERVAL_MS = 5000;
/**
 * The daemon counts as idle when its main thread takes no more CPU time than this between two checks, in this many in a
 * row. Not by the time that the event loop is active: on a host that is short of CPUs, waiting for one is most of that.
 */
const IDLE_MS = 100;
const IDLE_LOOKS = 2;
/** How much work of the main thread makes a collection worthwhile, in milliseconds. */
const WORTH_MS = 1000;

type Trimmed = Pick<Collapser, 'trim'>;

/**
 * Gives memory back when the daemon has been idle for some 10 s: V8 by itself keeps what it had at its busiest
 * (docs/decisions/014-memory.md). A busy daemon pays nothing, and one that does little is trimmed rarely:
 * only after a second of work in all.
 */
export class IdleTrim implements Disposable {
  readonly #collapser: Trimmed;
  readonly #isPaused: () => boolean;
  readonly #timer: NodeJS.Timeout;
  #previous = workedMs();
  #idleLooks = 0;
  #isFirst = true;
  /** Work since the last trim. The start alone is worth one. */
  #workMs = WORTH_MS;

  /** While `isPaused`, nothing is done or counted: the next thing that happens is a pause, or a resume just was. */
  constructor(collapser: Trimmed, isPaused: () => boolean) {
    this.#collapser = collapser;
    this.#isPaused = isPaused;
    this.#timer = setInterval(this.#look, INTERVAL_MS).unref();
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }

  readonly #look = (): void => {
    const now = workedMs();
    const worked = now - this.#previous;
    this.#previous = now;
    if (this.#isPaused()) return;
    this.#workMs += worked;
    this.#idleLooks = worked <= IDLE_MS ? this.#idleLooks + 1 : 0;
    if (this.#idleLooks < IDLE_LOOKS || this.#workMs < WORTH_MS) return;
    this.#workMs = 0;
    // Most code of the start never runs again; that of calls does, and a pause without a collapse may come next.
    this.#collapser.trim(this.#isFirst);
    this.#isFirst = false;
  };
}

/** CPU time of the main thread so far, in milliseconds. */
function workedMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}
