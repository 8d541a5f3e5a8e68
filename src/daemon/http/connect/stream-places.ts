import type { ServerResponse } from 'node:http';
import { EnvdError } from '../../../base/errors.ts';

/** Limits the number of open streams. */
export class StreamPlaces {
  readonly #most: number;
  #open = 0;

  constructor(most: number) {
    this.#most = most;
  }

  get open(): number {
    return this.#open;
  }

  /** Takes a place until the response is closed. Throws `resource_exhausted` when there is none. */
  take(response: ServerResponse): void {
    if (response.destroyed || this.#open >= this.#most) {
      const text = `too many streams: ${this.#most} are open (--max-streams): close some, or try again later`;
      throw new EnvdError('resource_exhausted', text);
    }
    this.#open++;
    response.once('close', () => {
      this.#open--;
    });
  }
}
