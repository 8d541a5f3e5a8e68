import type { User, UserDatabase } from '../../os/users.ts';

/** What /init has told the daemon about its guest; one value for the daemon's whole life. */
export class Guest {
  /** The token that callers must show, or null while every operation is open. */
  accessToken: string | null = null;
  /** The platform's variables, given to every process. */
  environment: Readonly<Record<string, string>> = {};
  defaultUser = 'root';
  /** The directory that an empty path means, or null for the user's home. */
  defaultWorkdir: string | null = null;

  readonly #users: UserDatabase;

  constructor(users: UserDatabase) {
    this.#users = users;
  }

  /**
   * The user that a call is made as; `name` empty or null: the default user.
   * Throws `unauthenticated` when there is no such user at the time of the call.
   */
  user(name: string | null): User {
    return this.#users.lookup(name || this.defaultUser);
  }
}
