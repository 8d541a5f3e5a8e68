import { within } from '../../base/abort.ts';
import { EnvdError } from '../../base/errors.ts';

/** A command must be answered within this time, in ms. */
const LIMIT_MS = 2000;

/**
 * Limits the time of commands to a server. While one command is overdue, others fail at once, so that a hanging server
 * neither delays nor accumulates them.
 */
export class CommandLimit {
  #overdue = 0;

  /**
   * Settles as `command` does. Throws `unavailable` when the server does not answer in time, or when another command is
   * overdue.
   */
  async run<T>(command: () => Promise<T>): Promise<T> {
    if (this.#overdue > 0) return silent();
    const answer = command();
    return await within(LIMIT_MS, answer, () => {
      this.#overdue++;
      const settled = () => {
        this.#overdue--;
      };
      // This happens when the command is answered after all, or when its connection is closed.
      answer.then(settled, settled);
      return silent();
    });
  }
}

function silent(): never {
  throw new EnvdError('unavailable', `the registry did not answer within ${LIMIT_MS / 1000} s`);
}
