import { HttpError } from '../../base/errors.ts';
import { tooMany } from '../access/rates.ts';

/** The most of one client that wait. */
const MOST = 64;

interface Queue {
  count: number;
  last: Promise<unknown>;
}

/** Does what is dear for one client after the other, so that no number of its requests holds up the registry for others. */
export class Turns {
  readonly #queues = new Map<string, Queue>();

  /** Throws an error with status 429 when too many of the client wait. */
  async take<T>(client: string, work: () => Promise<T>): Promise<T> {
    const queue = this.#queues.get(client) ?? { count: 0, last: Promise.resolve() };
    if (queue.count > MOST) {
      const { code, message } = tooMany(`'${client}' has ${MOST} lists that wait, the most that it may have`);
      throw new HttpError(code, message);
    }
    this.#queues.set(client, queue);
    queue.count++;
    const done = queue.last.then(work);
    // Whoever asked for the work is told that it failed; the next in the queue goes on.
    queue.last = done.catch(() => {});
    try {
      return await done;
    } finally {
      if (--queue.count === 0) this.#queues.delete(client);
    }
  }
}
