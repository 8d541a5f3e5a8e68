import { EnvdError } from '../../../base/errors.ts';
import { TO_ACT_AS_OTHERS } from '../../linux/system/capabilities.ts';
import type { onlyUser, User, UserDatabase } from '../../linux/system/users.ts';

type Variables = Readonly<Record<string, string>>;

/** The settings, as they are handed to a later program. */
export interface GuestState {
  readonly accessToken: string | null;
  readonly defaultUser: string;
  readonly defaultWorkdir: string | null;
  readonly variables: {
    readonly platform: Variables;
    readonly own: Variables;
    readonly defaults: Variables;
  };
}

/** How the daemon was told to begin. */
export interface FirstAccess {
  /** The token that is set until /init sets another one; null: none. */
  readonly accessToken: string | null;
  /** Whether operations are closed, and not open, while no token is set. */
  readonly requiresToken: boolean;
}

const OPEN: FirstAccess = { accessToken: null, requiresToken: false };

/** Keeps the settings of the guest that /init makes. */
export class Guest {
  /** The token that requests need; null when none is set. */
  accessToken: string | null;
  /** Whether operations are closed, and not open, while no token is set. */
  readonly requiresToken: boolean;
  defaultUser: string;
  /** The directory that an empty path means; null for the user's home. */
  defaultWorkdir: string | null = null;

  #defaultVariables: Variables;
  #platformVariables: Variables = {};
  #ownVariables: Variables = {};
  #environment: Variables;
  readonly #users: UserDatabase;
  readonly #only: ReturnType<typeof onlyUser>;

  /**
   * `only` is the user whom a daemon serves that can act as no other; null when it serves all users. `defaults` are the
   * variables that the platform can override.
   */
  constructor(
    users: UserDatabase,
    only: ReturnType<typeof onlyUser> = null,
    { accessToken, requiresToken }: FirstAccess = OPEN,
    defaults: Variables = {},
  ) {
    this.#defaultVariables = defaults;
    this.#environment = defaults;
    this.#users = users;
    this.#only = only;
    this.accessToken = accessToken;
    this.requiresToken = requiresToken;
    this.defaultUser = only === null ? 'root' : users.names().userName(only.uid);
  }

  /** Whether every caller is served, without a token. */
  get isOpen(): boolean {
    return this.accessToken === null && !this.requiresToken;
  }

  /**
   * The variables of every process: the defaults, the platform's, and the daemon's own. Later ones override earlier ones.
   */
  get environment(): Variables {
    return this.#environment;
  }

  set environment(variables: Variables) {
    this.#platformVariables = variables;
    this.#environment = { ...this.#defaultVariables, ...variables, ...this.#ownVariables };
  }

  /** Replaces the variables that the platform can override. */
  replaceDefaults(variables: Variables): void {
    this.#defaultVariables = variables;
    this.environment = this.#platformVariables;
  }

  /** Changes the daemon's own variables: null removes one, and those that are not named stay. */
  changeOwnVariables(changes: Readonly<Record<string, string | null>>): void {
    const all = Object.entries({ ...this.#ownVariables, ...changes });
    const set = all.filter((entry): entry is [string, string] => entry[1] !== null);
    this.#ownVariables = Object.fromEntries(set);
    this.environment = this.#platformVariables;
  }

  get state(): GuestState {
    const { accessToken, defaultUser, defaultWorkdir } = this;
    const variables = {
      platform: this.#platformVariables,
      own: this.#ownVariables,
      defaults: this.#defaultVariables,
    };
    return { accessToken, defaultUser, defaultWorkdir, variables };
  }

  /** Takes over the settings of an earlier program. If that had no token, the one of this program's start stays. */
  continueFrom({ accessToken, defaultUser, defaultWorkdir, variables }: GuestState): void {
    Object.assign(this, { accessToken: accessToken ?? this.accessToken, defaultUser, defaultWorkdir });
    this.#ownVariables = variables.own;
    this.#defaultVariables = variables.defaults;
    this.environment = variables.platform;
  }

  /**
   * Returns the user that a request runs as: the default user if `name` is empty or null. Throws `unauthenticated` if the
   * user does not exist, and `permission_denied` if the daemon cannot act as that user.
   */
  user(name: string | null): User {
    const asked = name || this.defaultUser;
    const user = this.#users.lookup(asked);
    if (this.#only === null) return user;
    // The daemon cannot change its groups either, and a call may name a group: `1000:1000`.
    const isOwnGroup = user.gid === this.#only.gid || !asked.includes(':');
    if (user.uid === this.#only.uid && isOwnGroup) return { ...user, ...this.#only };
    const own = this.#users.names().userName(this.#only.uid);
    const remedy = this.#only.uid === 0 ? `with ${TO_ACT_AS_OTHERS.join(', ')}` : 'as root';
    const text =
      this.#only.uid === 0
        ? `cannot act as user '${asked}': the daemon lacks capabilities and serves user '${own}' alone`
        : `cannot act as user '${asked}': the daemon is not root and serves user '${own}' alone`;
    throw new EnvdError('permission_denied', `${text}; start it ${remedy}, or name no other user`);
  }
}
