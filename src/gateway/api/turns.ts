import { HttpError } from '../../base/errors.ts';
import { tooMany } from '../access/rates.ts';

/** At most this many calls of one client may wait. */
const MOST = 64;

interface Queue {
  count: number;
  last: Promise<unknown>;
}

/**
 * Runs expensive work of each client one call at a time, so that the requests of one client cannot block the registry for
 * others.
 */
export class Turns {
  readonly #queues = new Map<string, Queue>();

  /**
   * Settles as `work` does, which runs when it is its turn. Throws an error with the status 429 when too many calls of the
   * client wait.
   */
  async take<T>(client: string, work: () => Promise<T>): Promise<T> {
    const queue = this.#queues.get(client) ?? { count: 0, last: Promise.resolve() };
    if (queue.count > MOST) {
      const { code, message } = tooMany(
        `client '${client}' has ${MOST} lists that wait, the most that it may have`,
      );
      throw new HttpError(code, message);
    }
    this.#queues.set(client, queue);
    queue.count++;
    const done = queue.last.then(work);
    // The caller gets the error through `done`, and the queue continues with the next call.
    queue.last = done.catch(() => {});
    try {
      return await done;
    } finally {
      if (--queue.count === 0) this.#queues.delete(client);
    }
  }
}
