import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import { messageOf } from '../../base/errors.ts';
import { monotonicMs } from '../../base/monotonic.ts';
import type { Sandbox } from '../leases/sandbox.ts';
import { acquire } from '../leases/transitions.ts';
import type { Registry } from '../registry/registry.ts';
import type { Expiration } from './expiration.ts';
import { HeldLease } from './held-lease.ts';
import { ExpiryLanes, type LaneLimits, type Waiting } from './lanes.ts';

/** A poll reads at most this many sandboxes that are due. */
const PAGE = 256;
/** If more are due, the next page is read after this time, in ms. */
const NEXT_PAGE_MS = 20;
/**
 * The time between two polls of the registry has these bounds, in ms. Other gateways may change the registry without notice.
 */
const LONGEST_WAIT_MS = 500;
const SHORTEST_WAIT_MS = 5;

export interface SchedulerParts extends LaneLimits {
  readonly registry: Registry;
  readonly expiration: Expiration;
  /** Identifies this run of this gateway. */
  readonly owner: string;
  /** A paused sandbox is forgotten after this time, in ms; null means never. */
  readonly keptMs: number | null;
  /** True if a hook removes the machine of a sandbox that is forgotten. */
  readonly canRemove?: boolean;
  readonly logger: Logger;
}

/** Polls the registry for sandboxes that are due, claims them, and gives them to `Expiration`. */
export class Scheduler {
  readonly #registry: Registry;
  readonly #expiration: Expiration;
  readonly #owner: string;
  readonly #keptMs: number | null;
  readonly #canRemove: boolean;
  readonly #logger: Logger;
  readonly #lanes: ExpiryLanes;
  readonly #inFlight = new Map<string, Promise<void>>();
  readonly #stop = new AbortController();
  /** The next page begins behind so many sandboxes that are due. */
  #offset = 0;
  #wake = () => {};
  #loop: Promise<unknown> = Promise.resolve();

  constructor({ registry, expiration, owner, keptMs, canRemove = false, logger, ...limits }: SchedulerParts) {
    this.#canRemove = canRemove;
    this.#registry = registry;
    this.#expiration = expiration;
    this.#owner = owner;
    this.#keptMs = keptMs;
    this.#logger = logger;
    this.#lanes = new ExpiryLanes(limits);
  }

  start(): void {
    this.#loop = Promise.all([this.#run(), this.#dateEndless()]);
  }

  /** Polls at once, because a record has changed. */
  wake(): void {
    this.#wake();
  }

  /** Claims no more sandboxes. Work in flight stops in its recorded phase, from which the next gateway continues. */
  async stop(): Promise<void> {
    this.#stop.abort();
    this.#wake();
    await this.#loop;
    await Promise.all(this.#inFlight.values());
  }

  async #dateEndless(): Promise<void> {
    try {
      if (this.#keptMs !== null) await this.#registry.dateEndless(this.#keptMs, this.#stop.signal);
    } catch (error) {
      const reason = messageOf(error);
      this.#logger.warn(
        { reason },
        'some paused sandboxes got no time after which they are forgotten: the next start tries again',
      );
    }
  }

  async #run(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      // The promise is created before the poll, so that a change during the poll is not missed.
      const woken = new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      const waitMs = Math.min(Math.max(await this.#poll(), SHORTEST_WAIT_MS), LONGEST_WAIT_MS);
      const timer = setTimeout(() => this.#wake(), waitMs);
      // A pause between two polls leaves time for other work, however many records change.
      await Promise.all([woken, delay(SHORTEST_WAIT_MS)]);
      clearTimeout(timer);
    }
  }

  /** Claims sandboxes that are due. Returns the time until more are due, in ms. */
  async #poll(): Promise<number> {
    if (this.#lanes.isFull) return LONGEST_WAIT_MS;
    try {
      const { waiting, nextInMs } = await this.#waiting();
      // Sandboxes whose last expiry failed come last, because they are probably dead.
      const [healthy, failed] = [waiting.filter(isHealthy), waiting.filter((each) => !isHealthy(each))];
      // A claim of this gateway may have lapsed during an outage of the registry, although the work goes on.
      const admitted = [...healthy, ...failed].filter(
        (each) => !this.#inFlight.has(each.id) && this.#lanes.take(each),
      );
      await Promise.all(admitted.map(({ id }) => this.#claim(id)));
      return nextInMs;
    } catch (error) {
      this.#logger.warn(
        { reason: messageOf(error) },
        'the expired sandboxes could not be read from the registry: the next poll tries again',
      );
      return LONGEST_WAIT_MS;
    }
  }

  /**
   * Returns a page of the sandboxes that are due. Each poll reads the next page, because the hosts of the first one may have
   * no free place.
   */
  async #waiting(): Promise<{ readonly waiting: readonly Waiting[]; readonly nextInMs: number }> {
    const { sandboxes, nextInMs } = await this.#registry.due(PAGE, this.#offset);
    const isLast = sandboxes.length < PAGE;
    const isOnly = isLast && this.#offset === 0;
    this.#offset = isLast ? 0 : this.#offset + PAGE;
    return { waiting: sandboxes, nextInMs: isOnly ? nextInMs : Math.min(nextInMs, NEXT_PAGE_MS) };
  }

  async #claim(id: string): Promise<void> {
    try {
      await this.#begin(id);
    } finally {
      if (!this.#inFlight.has(id)) this.#lanes.release(id);
    }
  }

  async #begin(id: string): Promise<void> {
    let claimed = false;
    const since = monotonicMs();
    const sandbox = await this.#registry.change(id, (current, now) => {
      const next = acquire(current, this.#owner, now, this.#canRemove);
      claimed = next !== current;
      return next;
    });
    if (claimed && sandbox) void this.work(sandbox, since);
    else if (sandbox === null)
      this.#logger.info(
        { sandboxID: id },
        'a sandbox was forgotten, because it was paused for longer than --keep-paused',
      );
  }

  /**
   * Works on a sandbox that this gateway has claimed, until it releases the claim. A sandbox that took no place in the lanes
   * needs none. `since` is the time at which the gateway asked for the claim, by `monotonicMs()`.
   */
  work(sandbox: Sandbox, since: number): Promise<void> {
    if (this.#stop.signal.aborted) return Promise.resolve();
    const { id } = sandbox;
    const work = this.#expiration
      .run(sandbox, new HeldLease(since, this.#stop.signal))
      .catch((error: unknown) =>
        this.#logger.error(
          { err: error, sandboxID: id },
          'unexpected error: the work on a sandbox has ended, please report it',
        ),
      )
      .finally(() => {
        // Other work on the sandbox may have begun since this work recorded its end.
        if (this.#inFlight.get(id) === work) this.#inFlight.delete(id);
        this.#lanes.release(id);
        this.wake();
      });
    this.#inFlight.set(id, work);
    return work;
  }
}

function isHealthy({ failures }: Waiting): boolean {
  return failures === 0;
}
