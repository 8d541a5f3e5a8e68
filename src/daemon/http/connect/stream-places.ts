import type { ServerResponse } from 'node:http';
import { Allowance } from '../../../base/allowance.ts';
import { EnvdError } from '../../../base/errors.ts';

/** Limits the number of open streams. */
export class StreamPlaces {
  readonly #most: number;
  readonly #free: Allowance;
  #open = 0;

  constructor(most: number) {
    this.#most = most;
    this.#free = new Allowance(most);
  }

  get open(): number {
    return this.#open;
  }

  /** Takes a place until the response is closed; false when there is none. */
  take(response: ServerResponse): boolean {
    if (response.destroyed || !this.#free.take(1)) return false;
    this.#open++;
    response.once('close', () => {
      this.#open--;
      this.#free.release(1);
    });
    return true;
  }

  error(): EnvdError {
    return new EnvdError('resource_exhausted', `too many streams: ${this.#most} are open (--max-streams)`);
  }
}
