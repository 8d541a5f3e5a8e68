import type { Logger } from 'pino';
import { messageOf } from '../../base/errors.ts';
import { takeUp } from '../leases/transitions.ts';
import type { Registry } from '../registry/registry.ts';
import type { Expiration } from './expiration.ts';

/** How many sandboxes are worked on at the same time. */
const AT_ONCE = 16;
/** The longest time between two looks: other gateways change things, too. */
const LOOK_MS = 500;
const SHORTEST_LOOK_MS = 5;

/** Finds the sandboxes whose time is up, and those whose gateway has gone, and sees to it that one gateway has each. */
export class Scheduler {
  readonly #registry: Registry;
  readonly #expiration: Expiration;
  readonly #owner: string;
  readonly #logger: Logger;
  readonly #running = new Map<string, Promise<void>>();
  readonly #stop = new AbortController();
  #wake = () => {};
  #loop = Promise.resolve();

  constructor(registry: Registry, expiration: Expiration, owner: string, logger: Logger) {
    this.#registry = registry;
    this.#expiration = expiration;
    this.#owner = owner;
    this.#logger = logger;
  }

  start(): void {
    this.#loop = this.#run();
  }

  /** Looks at once: something has changed. */
  wake(): void {
    this.#wake();
  }

  /** Begins nothing any more and leaves what is under way as it is recorded, for whoever comes next. */
  async stop(): Promise<void> {
    this.#stop.abort();
    this.#wake();
    await this.#loop;
    await Promise.all(this.#running.values());
  }

  async #run(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      // From here on a change is not overlooked.
      const changed = new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      const waitMs = await this.#look();
      const timer = setTimeout(() => this.#wake(), Math.min(Math.max(waitMs, SHORTEST_LOOK_MS), LOOK_MS));
      await changed;
      clearTimeout(timer);
    }
  }

  /** Takes up what is due; returns how long nothing else will be, in ms. */
  async #look(): Promise<number> {
    const free = AT_ONCE - this.#running.size;
    if (free <= 0) return LOOK_MS;
    try {
      // Some of what is due may be under way here.
      const { ids, nextInMs } = await this.#registry.due(AT_ONCE * 2);
      const mine = ids.filter((id) => !this.#running.has(id)).slice(0, free);
      await Promise.all(mine.map((id) => this.#take(id)));
      return nextInMs;
    } catch (error) {
      this.#logger.warn({ reason: messageOf(error) }, 'cannot look for what has expired');
      return LOOK_MS;
    }
  }

  async #take(id: string): Promise<void> {
    let taken = false;
    const sandbox = await this.#registry.change(id, (current, now) => {
      const next = takeUp(current, this.#owner, now);
      taken = next !== current;
      return next;
    });
    if (!taken || !sandbox || this.#stop.signal.aborted) return;
    const work = this.#expiration
      .run(sandbox, this.#stop.signal)
      .catch((error: unknown) => this.#logger.error({ err: error, sandboxID: id }, 'an expiry broke off'))
      .finally(() => {
        this.#running.delete(id);
        this.wake();
      });
    this.#running.set(id, work);
  }
}
