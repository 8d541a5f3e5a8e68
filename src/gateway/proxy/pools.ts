import { Agent, type ClientRequest } from 'node:http';
import type { Duplex } from 'node:stream';

/** How long an idle connection is kept, in ms: shorter than the limit of any usual server. */
const IDLE_TIMEOUT_MS = 4000;
const IDLE_CONNECTIONS = 64;

/** A pool whose idle connections count among those of all pools. */
class Pool extends Agent {
  readonly #idle: Set<Duplex>;
  readonly #mostIdle: number;

  constructor(idle: Set<Duplex>, mostIdle: number) {
    super({
      keepAlive: true,
      maxSockets: Number.POSITIVE_INFINITY,
      maxFreeSockets: IDLE_CONNECTIONS,
      scheduling: 'lifo',
      timeout: IDLE_TIMEOUT_MS,
    });
    this.#idle = idle;
    this.#mostIdle = mostIdle;
  }

  override keepSocketAlive(socket: Duplex): boolean {
    const [oldest] = this.#idle.size >= this.#mostIdle ? this.#idle : [];
    if (oldest) {
      this.#idle.delete(oldest);
      oldest.destroy();
    }
    this.#idle.add(socket);
    // Node documents that the method tells whether the connection is kept; its type does not say so.
    const isKept: unknown = super.keepSocketAlive(socket);
    return Boolean(isKept);
  }

  override reuseSocket(socket: Duplex, request: ClientRequest): void {
    this.#idle.delete(socket);
    super.reuseSocket(socket, request);
  }
}

/** The connection pools, one for each incarnation of a sandbox. */
export class ConnectionPools {
  /** By sandbox and incarnation. */
  readonly #agents = new Map<string, Map<string, Agent>>();
  /** Of all pools, the oldest first; those that were closed meanwhile go as the oldest. */
  readonly #idle = new Set<Duplex>();
  readonly #mostIdle: number;

  /** @param mostIdle connections that are kept without a request: of all sandboxes together */
  constructor(mostIdle: number) {
    this.#mostIdle = mostIdle;
  }

  of(sandboxId: string, incarnation: string): Agent {
    const pools = this.#agents.get(sandboxId) ?? new Map<string, Agent>();
    const known = pools.get(incarnation);
    if (known) return known;
    const agent = new Pool(this.#idle, this.#mostIdle);
    this.#agents.set(sandboxId, pools.set(incarnation, agent));
    return agent;
  }

  /**
   * Closes the pools of a sandbox that has gone, or is another one by now: a resumed machine does not know the old connections.
   *
   * @param except the incarnation that is still there
   */
  close(sandboxId: string, except?: string): void {
    const pools = this.#agents.get(sandboxId);
    for (const [incarnation, agent] of pools ?? []) {
      if (incarnation === except) continue;
      agent.destroy();
      pools?.delete(incarnation);
    }
    if (pools?.size === 0) this.#agents.delete(sandboxId);
  }

  /** The sandboxes that have a pool. */
  sandboxIds(): readonly string[] {
    return [...this.#agents.keys()];
  }

  closeAll(): void {
    for (const id of this.sandboxIds()) this.close(id);
  }
}
