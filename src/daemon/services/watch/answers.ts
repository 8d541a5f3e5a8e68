import { EnvdError } from '../../../base/errors.ts';

/**
 * Questions to file systems that may not answer. Each unanswered one holds a thread of the pool, of which there are
 * four; so there is one at a time for each file system.
 */
export class Answers {
  readonly #timeoutMs: number;
  readonly #last = new Map<string, Promise<unknown>>();

  constructor(timeoutMs = 5000) {
    this.#timeoutMs = timeoutMs;
  }

  /** Asks about `path`; `key` stands for the file system. Throws `deadline_exceeded` when there is no answer. */
  async ask<T>(key: string, path: string, question: () => Promise<T>): Promise<T> {
    const previous = this.#last.get(key);
    let isLate = false;
    const answer = (async () => {
      await previous?.catch(() => {});
      if (isLate) throw noAnswer(path);
      return await question();
    })();
    this.#last.set(key, answer);
    const forget = () => {
      if (this.#last.get(key) === answer) this.#last.delete(key);
    };
    answer.then(forget, forget);

    const late = Promise.withResolvers<never>();
    const timer = setTimeout(() => {
      isLate = true;
      late.reject(noAnswer(path));
    }, this.#timeoutMs);
    try {
      return await Promise.race([answer, late.promise]);
    } finally {
      clearTimeout(timer);
    }
  }
}

function noAnswer(path: string): EnvdError {
  return new EnvdError('deadline_exceeded', `file system does not answer at path: '${path}'`);
}
