import { within } from '../../../base/abort.ts';
import { EnvdError } from '../../../base/errors.ts';
import { KeyedQueues } from '../../../base/exclusion.ts';

/** Waiting requests per file system: hundreds of watches may start at once on one directory. */
const WAITING_LIMIT = 1024;

/**
 * Requests to file systems that may hang. Each request blocks a pool thread, so that at most one per file system is in
 * flight.
 */
export class Answers {
  readonly #timeoutMs: number;
  readonly #queues = new KeyedQueues('ask the file system', WAITING_LIMIT);

  constructor(timeoutMs = 5000) {
    this.#timeoutMs = timeoutMs;
  }

  /**
   * Runs `question`, a request about `path`; `key` identifies the file system. Throws `deadline_exceeded` after 5 s,
   * and `resource_exhausted` immediately while too many requests wait for the same file system.
   */
  async ask<T>(key: string, path: string, question: () => Promise<T>): Promise<T> {
    let isLate = false;
    const answer = this.#queues.run(key, async () => {
      if (isLate) throw noAnswer(path);
      return await question();
    });
    return within(this.#timeoutMs, answer, () => {
      isLate = true;
      throw noAnswer(path);
    });
  }
}

function noAnswer(path: string): EnvdError {
  return new EnvdError('deadline_exceeded', `file system does not answer at path: '${path}'`);
}
