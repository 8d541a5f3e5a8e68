import { within } from '../../base/abort.ts';
import { EnvdError } from '../../base/errors.ts';

/** How long a command may take, in ms. */
const LIMIT_MS = 2000;

/**
 * Limits the time of commands to a server. While one of them is overdue, others fail at once: a server that hangs neither
 * delays nor collects them.
 */
export class CommandLimit {
  #overdue = 0;

  /** Throws `unavailable` when the server does not answer in time. */
  async run<T>(command: () => Promise<T>): Promise<T> {
    if (this.#overdue > 0) return silent();
    const answer = command();
    return await within(LIMIT_MS, answer, () => {
      this.#overdue++;
      const settled = () => {
        this.#overdue--;
      };
      // The command was answered after all, or its connection was closed.
      answer.then(settled, settled);
      return silent();
    });
  }
}

function silent(): never {
  throw new EnvdError('unavailable', `the registry does not answer (within ${LIMIT_MS / 1000} s)`);
}
