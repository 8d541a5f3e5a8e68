import type { Logger } from 'pino';
import { messageOf } from '../../base/errors.ts';
import { isGone } from '../leases/sandbox.ts';
import type { Registry } from '../registry/registry.ts';
import type { Exchanges } from './exchanges.ts';
import type { ConnectionPools } from './pools.ts';

const POLL_MS = 1000;

/** Closes connections to sandboxes that have gone; it polls the registry, since another gateway may have expired them. */
export class StaleConnections implements Disposable {
  readonly #exchanges: Exchanges;
  readonly #pools: ConnectionPools;
  readonly #registry: Registry;
  readonly #logger: Logger;
  readonly #timer: NodeJS.Timeout;
  #polling = false;

  constructor(exchanges: Exchanges, pools: ConnectionPools, registry: Registry, logger: Logger) {
    this.#exchanges = exchanges;
    this.#pools = pools;
    this.#registry = registry;
    this.#logger = logger;
    this.#timer = setInterval(() => void this.#poll(), POLL_MS).unref();
  }

  /** Closes all connections to a sandbox, in flight or idle. */
  close(sandboxId: string): void {
    this.#exchanges.end(sandboxId);
    this.#pools.close(sandboxId);
  }

  async #poll(): Promise<void> {
    if (this.#polling) return;
    this.#polling = true;
    try {
      const ids = new Set([...this.#exchanges.sandboxIds(), ...this.#pools.sandboxIds()]);
      for (const id of ids) {
        const { sandbox } = await this.#registry.find(id);
        if (!sandbox || isGone(sandbox)) this.close(id);
      }
    } catch (error) {
      this.#logger.debug(
        { reason: messageOf(error) },
        'the registry could not be asked for expired sandboxes',
      );
    } finally {
      this.#polling = false;
    }
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }
}
