import { within } from '../../../base/abort.ts';
import { EnvdError } from '../../../base/errors.ts';
import { SerialQueue } from '../../../base/exclusion.ts';

/** Waiting requests per file system: hundreds of watches may start at once on one directory. */
const WAITING_LIMIT = 1024;

/**
 * Requests to file systems that may hang. Each request blocks a pool thread, so that at most one per file system is in
 * flight.
 */
export class Answers {
  readonly #timeoutMs: number;
  readonly #queues = new Map<string, SerialQueue>();

  constructor(timeoutMs = 5000) {
    this.#timeoutMs = timeoutMs;
  }

  /**
   * Runs `question`, a request about `path`; `key` identifies the file system. Throws `deadline_exceeded` after 5 s,
   * and `resource_exhausted` immediately while too many requests wait for the same file system.
   */
  async ask<T>(key: string, path: string, question: () => Promise<T>): Promise<T> {
    const queue = this.#queues.get(key) ?? new SerialQueue(`ask the file system at '${path}'`, WAITING_LIMIT);
    this.#queues.set(key, queue);
    let isLate = false;
    const answer = queue.run(async () => {
      if (isLate) throw noAnswer(path);
      return await question();
    });
    const forget = () => {
      if (queue.isIdle && this.#queues.get(key) === queue) this.#queues.delete(key);
    };
    answer.then(forget, forget);

    return within(this.#timeoutMs, answer, () => {
      isLate = true;
      throw noAnswer(path);
    });
  }
}

function noAnswer(path: string): EnvdError {
  return new EnvdError('deadline_exceeded', `file system does not answer at path: '${path}'`);
}
