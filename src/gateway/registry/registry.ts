import type { Sandbox } from '../leases/sandbox.ts';

/** A record and its version, which changes with every write. */
export interface Stored {
  readonly sandbox: Sandbox;
  readonly version: string;
}

/** A sandbox that some gateway has to act on. */
export interface DueSandbox {
  readonly id: string;
  readonly host: string;
  readonly failures: number;
}

/** The sandboxes that some gateway has to act on. */
export interface Due {
  readonly sandboxes: readonly DueSandbox[];
  /** The time until the next one, in ms; 0 or less when there are more already, infinity when there is none. */
  readonly nextInMs: number;
}

/** Called with the id of a record that some gateway has changed; null: any may have been. */
export type OnChange = (id: string | null) => void;

/** Keeps records. A write names the version that was read, so that of two concurrent writes one fails and starts again. */
export interface Store extends AsyncDisposable {
  /** Whether no other gateway can open it at the same time. */
  readonly exclusive: boolean;
  /** Calls `onChange` after each change from now on. */
  watch(onChange: OnChange): Promise<void>;
  /** A random key that all gateways of this registry share; the first one makes it. */
  key(): Promise<string>;
  /** Reads the record, and the clock that all gateways share (Unix ms). */
  read(id: string): Promise<{ readonly stored: Stored | null; readonly now: number }>;
  /**
   * Writes a record, or removes it (null), if its version is still `expected` (null: there is none). Returns whether it
   * was.
   */
  write(id: string, sandbox: Sandbox | null, expected: string | null): Promise<boolean>;
  /**
   * Whether a port is that of a daemon at the address, or may be: daemons at host names may be anywhere. Null: the address
   * is not known, so the port must be that of no daemon at all.
   */
  isDaemon(ip: string | null, port: number): Promise<boolean>;
  /** All records, in no order. */
  list(): Promise<readonly Sandbox[]>;
  /** At most `limit` of them behind the first `offset`, the longest due first. */
  due(limit: number, offset: number): Promise<Due>;
}

/** A change of a record: returns the new one, the same one to leave it, or null to remove it. Throws to refuse. */
export type Change = (sandbox: Sandbox, now: number) => Sandbox | null;

/** A record, and the clock that all gateways share (Unix ms). */
export interface Look {
  readonly sandbox: Sandbox | null;
  readonly now: number;
}

/** The records of all sandboxes. A change is atomic, also between gateways. */
export class Registry {
  readonly #store: Store;

  constructor(store: Store) {
    this.#store = store;
  }

  async find(id: string): Promise<Look> {
    const { stored, now } = await this.#store.read(id);
    return { sandbox: stored?.sandbox ?? null, now };
  }

  /** Makes or replaces a record. */
  async put(id: string, make: (before: Sandbox | null, now: number) => Sandbox): Promise<Sandbox> {
    for (;;) {
      const { stored, now } = await this.#store.read(id);
      const sandbox = make(stored?.sandbox ?? null, now);
      if (await this.#store.write(id, sandbox, stored?.version ?? null)) return sandbox;
    }
  }

  /** Changes a record. Null: there is none, or the change has removed it. */
  async change(id: string, change: Change): Promise<Sandbox | null> {
    for (;;) {
      const { stored, now } = await this.#store.read(id);
      if (!stored) return null;
      const sandbox = change(stored.sandbox, now);
      if (sandbox === stored.sandbox) return sandbox;
      if (await this.#store.write(id, sandbox, stored.version)) return sandbox;
    }
  }

  watch(onChange: OnChange): Promise<void> {
    return this.#store.watch(onChange);
  }

  isDaemon(ip: string | null, port: number): Promise<boolean> {
    return this.#store.isDaemon(ip, port);
  }

  list(): Promise<readonly Sandbox[]> {
    return this.#store.list();
  }

  due(limit: number, offset: number): Promise<Due> {
    return this.#store.due(limit, offset);
  }

  /** Drops the claims of earlier gateways, if no other gateway can be running. */
  async dropClaims(): Promise<void> {
    if (!this.#store.exclusive) return;
    for (const { id, claim } of await this.#store.list()) {
      if (claim) await this.change(id, (sandbox) => ({ ...sandbox, claim: null }));
    }
  }
}
