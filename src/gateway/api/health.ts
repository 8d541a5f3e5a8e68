import { monotonicMs } from '../../base/monotonic.ts';

/** A result is reused for this time, in ms, because everyone may ask for it and each check is a write. */
const KEPT_MS = 200;

/** Checks whether the gateway can work. Without its registry, it can route no request and expire no sandbox. */
export class HealthCheck {
  readonly #check: () => Promise<void>;
  #last: Promise<void> = Promise.resolve();
  #until = Number.NEGATIVE_INFINITY;

  /** @param check throws when the gateway cannot work */
  constructor(check: () => Promise<void>) {
    this.#check = check;
  }

  /** Throws what the last check threw. Makes a new check if the last one is too old. */
  run(): Promise<void> {
    if (monotonicMs() < this.#until) return this.#last;
    this.#until = Number.POSITIVE_INFINITY;
    const ended = () => {
      this.#until = monotonicMs() + KEPT_MS;
    };
    this.#last = this.#check();
    this.#last.then(ended, ended);
    return this.#last;
  }
}
