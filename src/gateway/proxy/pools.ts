import { Agent } from 'node:http';

/** Shorter than any server's own limit: a connection that was just closed over there is not used again. */
const IDLE_MS = 4000;
const IDLE_CONNECTIONS = 64;

/** Connections to the sandboxes that wait for the next request, apart for each sandbox. */
export class Pools {
  readonly #agents = new Map<string, Agent>();

  of(sandboxId: string): Agent {
    const known = this.#agents.get(sandboxId);
    if (known) return known;
    const agent = new Agent({
      keepAlive: true,
      maxSockets: Number.POSITIVE_INFINITY,
      maxFreeSockets: IDLE_CONNECTIONS,
      scheduling: 'lifo',
      timeout: IDLE_MS,
    });
    this.#agents.set(sandboxId, agent);
    return agent;
  }

  /** Closes the connections to a sandbox that has gone: one that comes back does not know them any more. */
  close(sandboxId: string): void {
    this.#agents.get(sandboxId)?.destroy();
    this.#agents.delete(sandboxId);
  }

  /** The sandboxes that there are connections for. */
  sandboxIds(): readonly string[] {
    return [...this.#agents.keys()];
  }

  closeAll(): void {
    for (const id of this.sandboxIds()) this.close(id);
  }
}
