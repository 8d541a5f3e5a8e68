import type { User, UserDatabase } from '../../os/users.ts';

type Variables = Readonly<Record<string, string>>;

/** What /init has told the daemon about its guest; one value for the daemon's whole life. */
export class Guest {
  /** The token that callers must show, or null while every operation is open. */
  accessToken: string | null = null;
  defaultUser = 'root';
  /** The directory that an empty path means, or null for the user's home. */
  defaultWorkdir: string | null = null;

  #platformVariables: Variables = {};
  #ownVariables: Variables = {};
  #environment: Variables = {};
  readonly #users: UserDatabase;

  constructor(users: UserDatabase) {
    this.#users = users;
  }

  /** The variables that every process gets: the platform's, and the daemon's own over them. */
  get environment(): Variables {
    return this.#environment;
  }

  /** Replaces the platform's variables. */
  set environment(variables: Variables) {
    this.#platformVariables = variables;
    this.#environment = { ...variables, ...this.#ownVariables };
  }

  /** Replaces the variables that the daemon sets itself. */
  set ownVariables(variables: Variables) {
    this.#ownVariables = variables;
    this.environment = this.#platformVariables;
  }

  /**
   * The user that a call is made as; `name` empty or null: the default user.
   * Throws `unauthenticated` when there is no such user at the time of the call.
   */
  user(name: string | null): User {
    return this.#users.lookup(name || this.defaultUser);
  }
}
