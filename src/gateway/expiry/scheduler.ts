import type { Logger } from 'pino';
import { messageOf } from '../../base/errors.ts';
import { acquire } from '../leases/transitions.ts';
import type { Registry } from '../registry/registry.ts';
import type { Expiration } from './expiration.ts';

/** The largest number of sandboxes that one gateway expires concurrently. */
const CONCURRENCY = 16;
/** The bounds of the time between two polls of the registry, in ms. Other gateways change it without a notice. */
const LONGEST_WAIT_MS = 500;
const SHORTEST_WAIT_MS = 5;

/** Polls the registry for sandboxes that are due, claims them, and hands them to `Expiration`. */
export class Scheduler {
  readonly #registry: Registry;
  readonly #expiration: Expiration;
  readonly #owner: string;
  readonly #logger: Logger;
  readonly #inFlight = new Map<string, Promise<void>>();
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

  /** Polls at once: a record has changed. */
  wake(): void {
    this.#wake();
  }

  /** Claims nothing more, and leaves what is in flight in its recorded phase, for the next gateway. */
  async stop(): Promise<void> {
    this.#stop.abort();
    this.#wake();
    await this.#loop;
    await Promise.all(this.#inFlight.values());
  }

  async #run(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      // Made before the poll, so that a change during the poll is seen.
      const woken = new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      const waitMs = Math.min(Math.max(await this.#poll(), SHORTEST_WAIT_MS), LONGEST_WAIT_MS);
      const timer = setTimeout(() => this.#wake(), waitMs);
      await woken;
      clearTimeout(timer);
    }
  }

  /** Claims what is due; returns the time until more will be, in ms. */
  async #poll(): Promise<number> {
    const free = CONCURRENCY - this.#inFlight.size;
    if (free <= 0) return LONGEST_WAIT_MS;
    try {
      // Twice as many: some of them may be in flight here.
      const { ids, nextInMs } = await this.#registry.due(CONCURRENCY * 2);
      const wanted = ids.filter((id) => !this.#inFlight.has(id)).slice(0, free);
      await Promise.all(wanted.map((id) => this.#claim(id)));
      return nextInMs;
    } catch (error) {
      this.#logger.warn(
        { reason: messageOf(error) },
        'the registry could not be asked for expired sandboxes',
      );
      return LONGEST_WAIT_MS;
    }
  }

  async #claim(id: string): Promise<void> {
    let claimed = false;
    const sandbox = await this.#registry.change(id, (current, now) => {
      const next = acquire(current, this.#owner, now);
      claimed = next !== current;
      return next;
    });
    if (!claimed || !sandbox || this.#stop.signal.aborted) return;
    const work = this.#expiration
      .run(sandbox, this.#stop.signal)
      .catch((error: unknown) => this.#logger.error({ err: error, sandboxID: id }, 'an expiry was aborted'))
      .finally(() => {
        this.#inFlight.delete(id);
        this.wake();
      });
    this.#inFlight.set(id, work);
  }
}
