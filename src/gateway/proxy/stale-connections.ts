import type { Logger } from 'pino';
import { messageOf } from '../../base/errors.ts';
import { isGone } from '../leases/sandbox.ts';
import type { Registry } from '../registry/registry.ts';
import type { Exchanges } from './exchanges.ts';
import type { Pools } from './pools.ts';

const LOOK_MS = 1000;

/** Breaks off what is still open to sandboxes that have gone, also when it was another gateway that saw them go. */
export class Leftovers implements Disposable {
  readonly #exchanges: Exchanges;
  readonly #pools: Pools;
  readonly #registry: Registry;
  readonly #logger: Logger;
  readonly #timer: NodeJS.Timeout;
  #looking = false;

  constructor(exchanges: Exchanges, pools: Pools, registry: Registry, logger: Logger) {
    this.#exchanges = exchanges;
    this.#pools = pools;
    this.#registry = registry;
    this.#logger = logger;
    this.#timer = setInterval(() => void this.#look(), LOOK_MS).unref();
  }

  /** Everything that is open to one sandbox. */
  end(sandboxId: string): void {
    this.#exchanges.end(sandboxId);
    this.#pools.close(sandboxId);
  }

  async #look(): Promise<void> {
    if (this.#looking) return;
    this.#looking = true;
    try {
      const ids = new Set([...this.#exchanges.sandboxIds(), ...this.#pools.sandboxIds()]);
      for (const id of ids) {
        const { sandbox } = await this.#registry.find(id);
        if (!sandbox || isGone(sandbox)) this.end(id);
      }
    } catch (error) {
      this.#logger.debug({ reason: messageOf(error) }, 'cannot see which sandboxes have gone');
    } finally {
      this.#looking = false;
    }
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }
}
