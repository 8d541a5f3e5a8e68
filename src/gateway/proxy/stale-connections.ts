import type { Logger } from 'pino';
import { messageOf } from '../../base/errors.ts';
import { isGone } from '../leases/sandbox.ts';
import type { Registry } from '../registry/registry.ts';
import type { Exchanges } from './exchanges.ts';
import type { ConnectionPools } from './pools.ts';

/** When to retry after the registry could not be reached, in ms. */
const RETRY_MS = 1000;

/** Closes connections to sandboxes that are gone, whichever gateway expired them. */
export class StaleConnections implements Disposable {
  readonly #exchanges: Exchanges;
  readonly #pools: ConnectionPools;
  readonly #registry: Registry;
  readonly #logger: Logger;
  #retry: NodeJS.Timeout | undefined;

  constructor(exchanges: Exchanges, pools: ConnectionPools, registry: Registry, logger: Logger) {
    this.#exchanges = exchanges;
    this.#pools = pools;
    this.#registry = registry;
    this.#logger = logger;
  }

  /** Closes all connections to a sandbox, in flight or idle. */
  close(sandboxId: string): void {
    this.#exchanges.end(sandboxId);
    this.#pools.close(sandboxId);
  }

  /** Call it when a record has changed; null: any may have. */
  async check(changed: string | null): Promise<void> {
    const inUse = new Set([...this.#exchanges.sandboxIds(), ...this.#pools.sandboxIds()]);
    const ids = changed === null ? inUse : [changed].filter((id) => inUse.has(id));
    try {
      for (const id of ids) {
        const { sandbox } = await this.#registry.find(id);
        if (!sandbox || isGone(sandbox)) this.close(id);
      }
    } catch (error) {
      const reason = messageOf(error);
      this.#logger.debug({ reason }, 'the registry could not be asked for expired sandboxes');
      clearTimeout(this.#retry);
      this.#retry = setTimeout(() => void this.check(null), RETRY_MS).unref();
    }
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#retry);
  }
}
