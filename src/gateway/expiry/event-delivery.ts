import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import { messageOf } from '../../base/errors.ts';
import type { Signer } from '../hooks/signer.ts';
import { eventView } from '../registry/event-view.ts';
import type { Ledger, StoredEvent } from '../registry/ledger.ts';

/** So many events are sent at a time. */
const BATCH = 16;
/** The server must answer within this time, in ms. */
const POST_MS = 10_000;
/** The registry is asked for new events at this interval, in ms. */
const POLL_MS = 500;
/** The times between two attempts have these bounds, in ms. */
const FIRST_RETRY_MS = 1000;
const LONGEST_RETRY_MS = 20_000;
/** A gateway that has died delivers no longer after this time, in ms. It is longer than an attempt and a wait take. */
const LEASE_MS = 60_000;
/** An event that is older than this is not tried again, in ms. */
const GIVE_UP_MS = 3_600_000;

export interface EventDeliveryParts {
  readonly ledger: Pick<Ledger, 'events' | 'deliver'>;
  readonly url: string;
  readonly signer: Signer;
  /** Identifies this run of this gateway. */
  readonly owner: string;
  readonly logger: Logger;
}

/**
 * Sends the events of the registry to a server, about in their order. One gateway of a registry does so at a time. The next one goes
 * on behind the last event that is recorded as delivered, so an event may come twice, with the same id. A server that does not
 * answer holds up nothing else: the registry keeps the events, and drops the oldest.
 */
export class EventDelivery {
  /** `delivered`, `failed` attempts, and events that were `dropped` before they were delivered. */
  readonly tally = { delivered: 0, failed: 0, dropped: 0 };
  readonly #parts: EventDeliveryParts;
  readonly #stop = new AbortController();
  #loop: Promise<void> = Promise.resolve();

  constructor(parts: EventDeliveryParts) {
    this.#parts = parts;
  }

  start(): void {
    this.#loop = this.#run();
  }

  /** Lets another gateway go on at once. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#loop;
  }

  async #run(): Promise<void> {
    const { logger } = this.#parts;
    while (!this.#stop.signal.aborted) {
      const isMore = await this.#deliver().catch((error: unknown) => {
        logger.warn({ reason: messageOf(error) }, 'the events could not be read or recorded');
        return false;
      });
      if (!isMore) await this.#wait(POLL_MS);
    }
  }

  /** Delivers a batch. Returns false if there was none for this gateway. */
  async #deliver(): Promise<boolean> {
    const { ledger, owner } = this.#parts;
    const delivered = await ledger.deliver(owner, LEASE_MS, null);
    if (delivered === null) return false;
    try {
      const events = await ledger.events(delivered, BATCH);
      const [first, last] = [events[0], events.at(-1)];
      if (!first || !last) return false;
      this.#drop(first.number - delivered - 1, 'so many have come since that they are no longer kept');
      if (!(await this.#send(events))) return false;
      return (await ledger.deliver(owner, LEASE_MS, last.number)) !== null;
    } finally {
      // The end of the lease.
      if (this.#stop.signal.aborted) await ledger.deliver(owner, 0, null);
    }
  }

  /** Tries until each event is delivered or dropped. Returns false if this gateway must deliver no more. */
  async #send(events: readonly StoredEvent[]): Promise<boolean> {
    const { ledger, owner } = this.#parts;
    let left = events;
    for (let waitMs = FIRST_RETRY_MS; ; waitMs = Math.min(2 * waitMs, LONGEST_RETRY_MS)) {
      const isSent = await Promise.all(left.map((event) => this.#post(event)));
      if (this.#stop.signal.aborted) return false;
      const failed = left.filter((_, index) => !isSent[index]);
      left = failed.filter(({ at }) => Date.now() - at < GIVE_UP_MS);
      this.#drop(failed.length - left.length, 'the server has not accepted them for an hour');
      if (left.length === 0) return true;
      await this.#wait(waitMs);
      if (this.#stop.signal.aborted || (await ledger.deliver(owner, LEASE_MS, null)) === null) return false;
    }
  }

  async #post(event: StoredEvent): Promise<boolean> {
    const { url, signer } = this.#parts;
    const view = eventView(event);
    const body = JSON.stringify(view);
    const signal = AbortSignal.any([this.#stop.signal, AbortSignal.timeout(POST_MS)]);
    const headers = {
      'content-type': 'application/json',
      'idempotency-key': view.id,
      ...signer.headersFor(view.id, body),
    };
    let isDone = false;
    try {
      const response = await fetch(url, { method: 'POST', body, headers, signal, redirect: 'manual' });
      isDone = response.ok;
      // The body may be of any size, and nobody needs it.
      await response.body?.cancel();
    } catch {
      // The attempt has failed, or the answer has ended too early, which does not matter.
    }
    this.tally[isDone ? 'delivered' : 'failed']++;
    return isDone;
  }

  #drop(count: number, why: string): void {
    if (count <= 0) return;
    this.tally.dropped += count;
    this.#parts.logger.warn({ count, why }, 'events were dropped before they were delivered');
  }

  async #wait(ms: number): Promise<void> {
    await delay(ms, undefined, { signal: this.#stop.signal }).catch(() => {});
  }
}
