import { Agent } from 'node:http';

/** How long an idle connection is kept, in ms: shorter than the limit of any usual server. */
const IDLE_TIMEOUT_MS = 4000;
const IDLE_CONNECTIONS = 64;

/** The connection pools, one for each sandbox. */
export class ConnectionPools {
  readonly #agents = new Map<string, Agent>();

  of(sandboxId: string): Agent {
    const known = this.#agents.get(sandboxId);
    if (known) return known;
    const agent = new Agent({
      keepAlive: true,
      maxSockets: Number.POSITIVE_INFINITY,
      maxFreeSockets: IDLE_CONNECTIONS,
      scheduling: 'lifo',
      timeout: IDLE_TIMEOUT_MS,
    });
    this.#agents.set(sandboxId, agent);
    return agent;
  }

  /** Closes the pool of a sandbox that has gone: a resumed machine does not know the old connections. */
  close(sandboxId: string): void {
    this.#agents.get(sandboxId)?.destroy();
    this.#agents.delete(sandboxId);
  }

  /** The sandboxes that have a pool. */
  sandboxIds(): readonly string[] {
    return [...this.#agents.keys()];
  }

  closeAll(): void {
    for (const id of this.sandboxIds()) this.close(id);
  }
}
