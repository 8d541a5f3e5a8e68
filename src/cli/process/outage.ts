import { setTimeout as delay } from 'node:timers/promises';

const FIRST_PAUSE_MS = 200;
const LONGEST_PAUSE_MS = 5_000;

/** The time from a lost connection until the process is followed again. It may take several attempts. */
export class Outage {
  readonly #limitMs: number;
  #until: number;
  #pauseMs = FIRST_PAUSE_MS;
  #count = 0;
  #isPaused = false;

  constructor(limitMs: number) {
    this.#limitMs = limitMs;
    this.#until = performance.now() + limitMs;
  }

  /** True until the first attempt. */
  get begins(): boolean {
    return this.#count === 0;
  }

  get isTooLong(): boolean {
    return performance.now() > this.#until;
  }

  /** Notes that the sandbox is paused, which may take any time. Returns whether that is new. */
  pauses(): boolean {
    this.#until = performance.now() + this.#limitMs;
    const isNew = !this.#isPaused;
    this.#isPaused = true;
    return isNew;
  }

  /** Waits before the next attempt, longer each time. */
  async pause(signal: AbortSignal | undefined): Promise<void> {
    this.#count++;
    await delay(this.#pauseMs, undefined, { signal }).catch(() => {});
    this.#pauseMs = Math.min(this.#pauseMs * 2, LONGEST_PAUSE_MS);
  }
}
