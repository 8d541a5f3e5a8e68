import { callErrorOf } from '../wire/call-error.ts';
import type { ConsoleClient } from '../wire/console-client.ts';
import type { SandboxMessage } from '../wire/messages.ts';
import { Observable } from './observable.ts';

const INTERVAL_MS = 3000;
const MAX_PAGES = 20;
const LATE_MS = 3000;

/** The sandboxes of the gateway, as of a moment. */
export interface ListedSandboxes {
  readonly sandboxes: readonly SandboxMessage[];
  /** Why they could not be listed. */
  readonly problem: string | null;
  readonly isKnown: boolean;
  /** Whether these are all. */
  readonly isWhole: boolean;
}

/** Clocks that differ by less, in milliseconds, are said to be the same: answers take time. */
const CLOCKS_MS = 5000;

/** Lists the sandboxes of the gateway every three seconds, which wakes none of them. */
export class SandboxList {
  readonly state = new Observable<ListedSandboxes>({
    ...{ sandboxes: [], problem: null, isKnown: false, isWhole: false },
  });
  readonly #client: ConsoleClient;
  /** Sandboxes that this page is pausing. */
  readonly #pausing = new Set<string>();
  #looking: Promise<void> | null = null;
  /** How far the clock of the gateway is ahead of that of the browser. */
  #aheadMs = 0;

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
    return this.#pausing.has(id) || this.find(id)?.state === 'paused';
  }

  find(id: string | null): SandboxMessage | undefined {
    return this.state.value.sandboxes.find(({ sandboxID }) => sandboxID === id);
  }

  /** The time that it has left, in milliseconds; null: it has no end. */
  leftMs({ endAt }: SandboxMessage): number | null {
    const end = Date.parse(endAt ?? '');
    return Number.isNaN(end) ? null : end - Date.now() - this.#aheadMs;
  }

  /** Adds to the time left, and returns what is left then, in milliseconds. Throws `CallError`. */
  async extend(id: string, seconds: number): Promise<number | null> {
    await this.look();
    const found = this.find(id);
    const left = Math.max(0, (found && this.leftMs(found)) ?? 0);
    await this.change(id, 'timeout', { timeout: Math.ceil(left / 1000) + seconds });
    const now = this.find(id);
    return now ? this.leftMs(now) : null;
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

  /** Creates one and returns its id; empty: the gateway did not tell it. Throws `CallError`. */
  async create(body: object): Promise<string> {
    const { sandboxID } = Object(await this.#client.json('POST', '/gateway/v2/sandboxes', body));
    await this.look();
    return String(sandboxID ?? '');
  }

  /** The names of the templates; none where the gateway does not tell them. */
  async templates(): Promise<readonly string[]> {
    const told = await this.#client.json('GET', '/gateway/templates').catch(() => null);
    if (!Array.isArray(told)) return [];
    return told.flatMap((each) => [each?.aliases?.[0] ?? each?.templateID]).map(String);
  }

  /** A link that opens a port of a private sandbox in a browser for an hour. Throws `CallError`. */
  async preview(id: string, port: number): Promise<string> {
    const path = `/gateway/sandboxes/${encodeURIComponent(id)}/previews`;
    const { url } = Object(await this.#client.json('POST', path, { port }));
    return String(url);
  }

  /** Looks once for all who ask meanwhile, and does not wait long for a gateway that does not answer. */
  lookShared(): Promise<void> {
    const late = new Promise<void>((resolve) => setTimeout(resolve, LATE_MS));
    this.#looking ??= this.look().finally(() => {
      this.#looking = null;
    });
    return Promise.race([this.#looking, late]);
  }

  async look(): Promise<void> {
    try {
      this.state.set({ ...(await this.#all()), problem: null, isKnown: true });
    } catch (error) {
      this.state.update((state) => ({ ...state, problem: callErrorOf(error).message }));
    }
  }

  async #turn(): Promise<void> {
    await this.look();
    setTimeout(() => void this.#turn(), INTERVAL_MS);
  }

  async #all(): Promise<Pick<ListedSandboxes, 'sandboxes' | 'isWhole'>> {
    const sandboxes: SandboxMessage[] = [];
    let query = 'limit=1000';
    for (let page = 0; page < MAX_PAGES; page++) {
      const { items, next, sentAt } = await this.#client.listPage(query);
      const aheadMs = sentAt - Date.now();
      this.#aheadMs = Math.abs(aheadMs) > CLOCKS_MS ? aheadMs : 0;
      if (!Array.isArray(items)) break;
      sandboxes.push(...items.filter((item) => typeof item?.sandboxID === 'string'));
      if (!next) return { sandboxes, isWhole: true };
      query = `limit=1000&nextToken=${encodeURIComponent(next)}`;
    }
    return { sandboxes, isWhole: false };
  }
}
