import { onAbort } from '../../../base/abort.ts';
import { EnvdError } from '../../../base/errors.ts';

/** So many searches run at the same time, because each is a process with up to about 200 MiB. */
const MAX_RUNNING = 4;
const MAX_WAITING = 256;

/** Limits the searches of all clients. Further ones wait in order. */
export class SearchPlaces {
  #taken = 0;
  readonly #waiting = new Set<() => void>();

  /** True if a search waits for a place. */
  get isWanted(): boolean {
    return this.#waiting.size > 0;
  }

  /** Waits for a place, which is taken until `leave` is called. Throws `resource_exhausted`, and the reason of the signal. */
  async enter(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (this.#taken < MAX_RUNNING) {
      this.#taken += 1;
      return;
    }
    if (this.#waiting.size >= MAX_WAITING) {
      const message = `more than ${MAX_WAITING} searches are waiting: try again later`;
      throw new EnvdError('resource_exhausted', message);
    }
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#waiting.add(resolve);
    const removeListener = onAbort(signal, () => {
      if (this.#waiting.delete(resolve)) reject(signal.reason);
    });
    await promise.finally(removeListener);
  }

  /** Gives the place to the search that has waited longest. */
  leave(): void {
    const [next] = this.#waiting;
    if (next === undefined) {
      this.#taken -= 1;
      return;
    }
    this.#waiting.delete(next);
    next();
  }
}
