import { monotonicMs } from '../../base/monotonic.ts';

/** How long an answer is given to whoever asks, in ms, because everyone may ask and each check is a write. */
const KEPT_MS = 200;

/** Tells whether the gateway can work: without its registry no request can be routed, and no sandbox expires. */
export class HealthCheck {
  readonly #check: () => Promise<void>;
  #last: Promise<void> = Promise.resolve();
  #until = Number.NEGATIVE_INFINITY;

  /** @param check throws when the gateway cannot work */
  constructor(check: () => Promise<void>) {
    this.#check = check;
  }

  /** Throws what the last check has thrown; a new one is made when that is too long ago. */
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
