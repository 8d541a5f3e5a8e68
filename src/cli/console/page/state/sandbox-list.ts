import { callErrorOf } from '../wire/call-error.ts';
import type { ConsoleClient } from '../wire/console-client.ts';
import type { SandboxMessage } from '../wire/messages.ts';
import { Observable } from './observable.ts';

const INTERVAL_MS = 3000;
const MAX_PAGES = 20;

/** The sandboxes of the gateway, as of a moment. */
export interface ListedSandboxes {
  readonly sandboxes: readonly SandboxMessage[];
  /** Why they could not be listed. */
  readonly problem: string | null;
  readonly isKnown: boolean;
}

/** Lists the sandboxes of the gateway every three seconds, which wakes none of them. */
export class SandboxList {
  readonly state = new Observable<ListedSandboxes>({ sandboxes: [], problem: null, isKnown: false });
  readonly #client: ConsoleClient;
  /** Sandboxes that this page is pausing. */
  readonly #pausing = new Set<string>();

  private constructor(client: ConsoleClient) {
    this.#client = client;
  }

  /** Lists them for the first time before anything is called that would wake one; without a gateway there are none. */
  static async open(client: ConsoleClient): Promise<SandboxList> {
    const list = new SandboxList(client);
    if (client.about.hasGateway) await list.#turn();
    return list;
  }

  /** Whether a call would wake the sandbox. */
  isPaused(id: string | null): boolean {
    if (id === null) return false;
    const found = this.state.value.sandboxes.find(({ sandboxID }) => sandboxID === id);
    return this.#pausing.has(id) || found?.state === 'paused';
  }

  /** An operation such as `pause`; null: the end. Throws `CallError`. */
  async change(id: string, operation: string | null, body?: object): Promise<void> {
    const path = `/gateway/sandboxes/${encodeURIComponent(id)}`;
    // Already now, so that no call of this page wakes it at once.
    if (operation === 'pause') this.#pausing.add(id);
    try {
      await this.#client.json(
        operation === null ? 'DELETE' : 'POST',
        operation === null ? path : `${path}/${operation}`,
        body,
      );
      await this.look();
    } finally {
      this.#pausing.delete(id);
    }
  }

  async look(): Promise<void> {
    try {
      this.state.set({ sandboxes: await this.#all(), problem: null, isKnown: true });
    } catch (error) {
      this.state.update((state) => ({ ...state, problem: callErrorOf(error).message }));
    }
  }

  async #turn(): Promise<void> {
    await this.look();
    setTimeout(() => void this.#turn(), INTERVAL_MS);
  }

  async #all(): Promise<SandboxMessage[]> {
    const sandboxes: SandboxMessage[] = [];
    let query = 'limit=1000';
    for (let page = 0; page < MAX_PAGES; page++) {
      const { items, next } = await this.#client.listPage(query);
      if (Array.isArray(items))
        sandboxes.push(...items.filter((item) => typeof item?.sandboxID === 'string'));
      if (!next) break;
      query = `limit=1000&nextToken=${encodeURIComponent(next)}`;
    }
    return sandboxes;
  }
}
