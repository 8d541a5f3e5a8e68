/** What is frozen and not thawed by anybody is thawed after this time. */
export const WATCHDOG_MS = 10 * 60 * 1000;

/** Calls `expire` once, `timeoutMs` after it was last armed, unless it has been disarmed. */
export class Watchdog {
  readonly #timeoutMs: number;
  readonly #expire: () => void;
  #timer: NodeJS.Timeout | null = null;

  constructor(timeoutMs: number, expire: () => void) {
    this.#timeoutMs = timeoutMs;
    this.#expire = expire;
  }

  arm(): void {
    this.disarm();
    this.#timer = setTimeout(this.#expire, this.#timeoutMs);
    this.#timer.unref();
  }

  disarm(): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
  }
}
