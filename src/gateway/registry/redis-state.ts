import type { SandboxEvent } from '../leases/events.ts';
import { readUsage, type Usage } from '../leases/usage.ts';
import type { RedisLink } from './redis-link.ts';
import { KEYS } from './redis-scripts.ts';
import type { SharedState, StoredEvent } from './shared-state.ts';

/** What several gateways keep in Redis beside the records. */
export class RedisState implements SharedState {
  readonly #link: RedisLink;

  constructor(link: RedisLink) {
    this.#link = link;
  }

  countOf(owner: string): Promise<number> {
    return this.#link.run((client) => client.zCard(KEYS.ofOwner(owner)));
  }

  async events(after: number, limit: number): Promise<readonly StoredEvent[]> {
    const found = await this.#link.run((client) =>
      client.xRange(KEYS.events, `(0-${after}`, '+', { COUNT: limit }),
    );
    return (found ?? []).map(({ id, message: { at, event = '' } }) => {
      return { number: Number(id.split('-')[1]), at: Number(at), ...(JSON.parse(event) as SandboxEvent) };
    });
  }

  async deliver(owner: string, ms: number, delivered: number | null): Promise<number | null> {
    const values = [owner, String(ms), String(delivered ?? '')];
    const last = await this.#link.write((client) => client.deliverEvents(KEYS.delivery, values));
    return last === '' ? null : Number(last);
  }

  async usage(): Promise<readonly Usage[]> {
    const { now, found } = await this.#link.run((client) => client.readUsage(KEYS.usage, []));
    return found.map(([key = '', figures = '']) => {
      const [running = 0, sum = 0, at = now] = figures.split(' ').map(Number);
      return readUsage(key, sum + running * Math.max(0, now - at));
    });
  }

  async drained(): Promise<ReadonlySet<string>> {
    return new Set(await this.#link.run((client) => client.sMembers(KEYS.drained)));
  }

  async setDrained(host: string, isDrained: boolean): Promise<void> {
    await this.#link.write((client) =>
      isDrained ? client.sAdd(KEYS.drained, host) : client.sRem(KEYS.drained, host),
    );
  }
}
