import { Agent, type ClientRequest } from 'node:http';
import type { Duplex } from 'node:stream';

/** An idle connection is kept for this time, in ms. Usual servers keep it for longer, so they rarely close it first. */
const IDLE_TIMEOUT_MS = 4000;
/** At most this many idle connections to one sandbox are kept. */
const IDLE_CONNECTIONS = 64;

/** A pool whose idle connections share a limit with all other pools. */
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
    // Node documents that the method returns whether the connection is kept, but its type does not say so.
    const isKept: unknown = super.keepSocketAlive(socket);
    return Boolean(isKept);
  }

  override reuseSocket(socket: Duplex, request: ClientRequest): void {
    this.#idle.delete(socket);
    super.reuseSocket(socket, request);
  }
}

/** Has a connection pool for each incarnation of each sandbox. */
export class ConnectionPools {
  /** The outer keys are ids of sandboxes, and the inner ones their incarnations. */
  readonly #agents = new Map<string, Map<string, Agent>>();
  /** The idle connections of all pools, the oldest first. Closed ones stay until they are the oldest. */
  readonly #idle = new Set<Duplex>();
  readonly #mostIdle: number;

  /** @param mostIdle the number of idle connections that are kept for all sandboxes together */
  constructor(mostIdle: number) {
    this.#mostIdle = mostIdle;
  }

  /** Returns the pool for an incarnation of a sandbox, which is made if needed. */
  of(sandboxId: string, incarnation: string): Agent {
    const pools = this.#agents.get(sandboxId) ?? new Map<string, Agent>();
    const known = pools.get(incarnation);
    if (known) return known;
    const agent = new Pool(this.#idle, this.#mostIdle);
    this.#agents.set(sandboxId, pools.set(incarnation, agent));
    return agent;
  }

  /**
   * Closes the pools of a sandbox that has gone or was registered again, because a resumed machine does not know old
   * connections.
   *
   * @param except the current incarnation, whose pool stays
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

  /** Returns whether a sandbox has a pool. */
  has(sandboxId: string): boolean {
    return this.#agents.has(sandboxId);
  }

  /** Returns the ids of the sandboxes that have a pool. */
  sandboxIds(): readonly string[] {
    return [...this.#agents.keys()];
  }

  closeAll(): void {
    for (const id of this.sandboxIds()) this.close(id);
  }
}
