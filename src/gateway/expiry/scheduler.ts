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

/** How many waiting sandboxes are read in a poll, and the time until the next are when there are more, in ms. */
const PAGE = 256;
const NEXT_PAGE_MS = 20;
/** The bounds of the time between two polls of the registry, in ms. Other gateways may change it without notice. */
const LONGEST_WAIT_MS = 500;
const SHORTEST_WAIT_MS = 5;

export interface SchedulerParts extends LaneLimits {
  readonly registry: Registry;
  readonly expiration: Expiration;
  /** Identifies this run of this gateway. */
  readonly owner: string;
  /** How long paused sandboxes are remembered, in ms; null: for ever. */
  readonly keptMs: number | null;
  readonly logger: Logger;
}

/** Polls the registry for sandboxes that are due, claims them, and hands them to `Expiration`. */
export class Scheduler {
  readonly #registry: Registry;
  readonly #expiration: Expiration;
  readonly #owner: string;
  readonly #keptMs: number | null;
  readonly #logger: Logger;
  readonly #lanes: ExpiryLanes;
  readonly #inFlight = new Map<string, Promise<void>>();
  readonly #stop = new AbortController();
  /** How many that wait come before the next page. */
  #offset = 0;
  #wake = () => {};
  #loop: Promise<unknown> = Promise.resolve();

  constructor({ registry, expiration, owner, keptMs, logger, ...limits }: SchedulerParts) {
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

  async #dateEndless(): Promise<void> {
    try {
      if (this.#keptMs !== null) await this.#registry.dateEndless(this.#keptMs, this.#stop.signal);
    } catch (error) {
      const reason = messageOf(error);
      this.#logger.warn({ reason }, 'some paused sandboxes are kept for ever until the next start');
    }
  }

  async #run(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      // The promise is there before the poll, so that a change during the poll is not missed.
      const woken = new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      const waitMs = Math.min(Math.max(await this.#poll(), SHORTEST_WAIT_MS), LONGEST_WAIT_MS);
      const timer = setTimeout(() => this.#wake(), waitMs);
      // However many records change, other work comes between two polls.
      await Promise.all([woken, delay(SHORTEST_WAIT_MS)]);
      clearTimeout(timer);
    }
  }

  /** Claims what is due; returns the time until more will be, in ms. */
  async #poll(): Promise<number> {
    if (this.#lanes.isFull) return LONGEST_WAIT_MS;
    try {
      const { waiting, nextInMs } = await this.#waiting();
      // Sandboxes whose last expiry failed are probably dead.
      const [healthy, failed] = [waiting.filter(isHealthy), waiting.filter((each) => !isHealthy(each))];
      const admitted = [...healthy, ...failed].filter((each) => this.#lanes.take(each));
      await Promise.all(admitted.map(({ id }) => this.#claim(id)));
      return nextInMs;
    } catch (error) {
      this.#logger.warn(
        { reason: messageOf(error) },
        'the registry could not be asked for expired sandboxes',
      );
      return LONGEST_WAIT_MS;
    }
  }

  /** A page of the sandboxes that are due. All have their turn, not only the first ones, whose hosts may have no free place. */
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
      const next = acquire(current, this.#owner, now);
      claimed = next !== current;
      return next;
    });
    if (claimed && sandbox) void this.work(sandbox, since);
    else if (sandbox === null)
      this.#logger.info({ sandboxID: id }, 'forgotten: it has been paused for too long');
  }

  /**
   * Works on a sandbox that this gateway has claimed, until it gives it up. One that did not come from a lane takes no
   * place in them. `since`: when it asked for the claim, by `monotonicMs()`.
   */
  work(sandbox: Sandbox, since: number): Promise<void> {
    if (this.#stop.signal.aborted) return Promise.resolve();
    const { id } = sandbox;
    const work = this.#expiration
      .run(sandbox, new HeldLease(since, this.#stop.signal))
      .catch((error: unknown) => this.#logger.error({ err: error, sandboxID: id }, 'an expiry was aborted'))
      .finally(() => {
        // Later work may have begun since this one recorded its end.
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
