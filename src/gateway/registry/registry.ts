import type { Sandbox } from '../leases/sandbox.ts';
import type { Store } from './store.ts';

/** A change of a record: the next one, the same one for none, null to remove it. Throws to refuse. */
export type Change = (sandbox: Sandbox, now: number) => Sandbox | null;

/** A look at a record, and the clock that all gateways share (Unix ms). */
export interface Look {
  readonly sandbox: Sandbox | null;
  readonly now: number;
}

/** The sandboxes that there are. A change is made whole or not at all, whoever else changes the same record. */
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

  /** Changes a record; null when there is none, or none any more. */
  async change(id: string, change: Change): Promise<Sandbox | null> {
    for (;;) {
      const { stored, now } = await this.#store.read(id);
      if (!stored) return null;
      const sandbox = change(stored.sandbox, now);
      if (sandbox === stored.sandbox) return sandbox;
      if (await this.#store.write(id, sandbox, stored.version)) return sandbox;
    }
  }

  list(): Promise<readonly Sandbox[]> {
    return this.#store.list();
  }

  due(limit: number) {
    return this.#store.due(limit);
  }

  /** Gives up the claims of gateways that were here before, when nobody else can be there. */
  async takeOver(): Promise<void> {
    if (!this.#store.exclusive) return;
    for (const { id, claim } of await this.#store.list()) {
      if (claim) await this.change(id, (sandbox) => ({ ...sandbox, claim: null }));
    }
  }
}
