import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import { messageOf } from '../../base/errors.ts';
import { monotonicMs } from '../../base/monotonic.ts';
import type { Signer } from '../hooks/signer.ts';
import { eventView } from '../registry/event-view.ts';
import type { SharedState, StoredEvent } from '../registry/shared-state.ts';

/** So many events are sent at a time. */
const BATCH = 16;
/** So many events are kept in memory. Later ones wait in the registry, so a server that refuses one does not hold up others. */
const MOST_PENDING = 256;
/** The server must answer within this time, in ms. */
const POST_MS = 10_000;
/** The registry is asked for new events at this interval, in ms. */
const POLL_MS = 500;
/** A gateway asks at this interval, in ms, whether the one that delivers has stopped. */
const TAKE_OVER_MS = 2000;
/** The times between two attempts have these bounds, in ms. */
const FIRST_RETRY_MS = 1000;
const LONGEST_RETRY_MS = 30_000;
/** After this time without a renewal, another gateway delivers, in ms. It is longer than an attempt takes. */
const LEASE_MS = 30_000;
/** An event that is older than this is not tried again, in ms. */
const GIVE_UP_MS = 3_600_000;

export interface EventDeliveryParts {
  readonly shared: Pick<SharedState, 'events' | 'deliver'>;
  readonly url: string;
  readonly signer: Signer;
  /** Identifies this run of this gateway. */
  readonly owner: string;
  readonly logger: Logger;
}

/** An event that was not delivered yet. */
interface Pending {
  readonly event: StoredEvent;
  /** It is tried again at this time, by `monotonicMs()`. */
  dueAt: number;
  waitMs: number;
}

/** This gateway delivers, up to its place in the events of the registry. */
interface Place {
  /** The number of the last event that was read. */
  read: number;
  /** Up to this number, all events are recorded as delivered or dropped. */
  recorded: number;
  /** The claim was renewed at this time, by `monotonicMs()`. */
  renewedAt: number;
}

/**
 * Sends the events of the registry to a server, about in their order. One gateway of a registry does so at a time. The next one goes
 * on behind the last event that is recorded as delivered, so an event may come twice, with the same id. A server that does not
 * answer holds up nothing else: the registry keeps the events, and drops the oldest.
 */
export class EventDelivery {
  /** `delivered` events, `failed` attempts, and events that were `dropped` before they were delivered. */
  readonly tally = { delivered: 0, failed: 0, dropped: 0 };
  readonly #parts: EventDeliveryParts;
  readonly #stop = new AbortController();
  /** The keys are the numbers of the events, in their order. */
  readonly #pending = new Map<number, Pending>();
  /** It is null while another gateway delivers. */
  #place: Place | null = null;
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
    const { signal } = this.#stop;
    const tell = (error: unknown) => {
      this.#parts.logger.warn({ reason: messageOf(error) }, 'the events could not be read or recorded');
      return POLL_MS;
    };
    while (!signal.aborted) {
      const waitMs = await this.#deliver().catch(tell);
      if (waitMs > 0) await delay(waitMs, undefined, { signal }).catch(() => {});
    }
    // This ends the claim.
    if (this.#place) await this.#claim(0).catch(tell);
  }

  /** Delivers what is due. Returns the time until there may be more, in ms. */
  async #deliver(): Promise<number> {
    const place = await this.#keep();
    if (!place) return TAKE_OVER_MS;
    const isRead = await this.#read(place);
    const now = monotonicMs();
    const due = [...this.#pending.values()].filter(({ dueAt }) => dueAt <= now).slice(0, BATCH);
    await Promise.all(due.map((each) => this.#try(each)));
    return isRead || due.length > 0 ? 0 : POLL_MS;
  }

  /** Claims the delivery, or renews the claim and records what is delivered. Returns null if another gateway delivers. */
  async #keep(): Promise<Place | null> {
    const place = this.#place;
    const isNew = place === null || place.recorded !== this.#done(place);
    return isNew || monotonicMs() - place.renewedAt > LEASE_MS / 4 ? this.#claim(LEASE_MS) : place;
  }

  async #claim(ms: number): Promise<Place | null> {
    const { shared, owner } = this.#parts;
    const [place, renewedAt] = [this.#place, monotonicMs()];
    const recorded = await shared.deliver(owner, ms, place && this.#done(place));
    if (recorded === null) this.#pending.clear();
    this.#place = recorded === null ? null : { read: place?.read ?? recorded, recorded, renewedAt };
    return this.#place;
  }

  /** The number of the event up to which nothing is pending. */
  #done({ read }: Place): number {
    const [first] = this.#pending.keys();
    return first === undefined ? read : first - 1;
  }

  /** Reads more events. Returns false if there are none. */
  async #read(place: Place): Promise<boolean> {
    const room = MOST_PENDING - this.#pending.size;
    const events = room > 0 ? await this.#parts.shared.events(place.read, Math.min(room, BATCH)) : [];
    const [first, last] = [events[0], events.at(-1)];
    if (!first || !last) return false;
    this.#drop(first.number - place.read - 1, 'so many have come since that they are no longer kept');
    for (const event of events) this.#pending.set(event.number, { event, dueAt: 0, waitMs: FIRST_RETRY_MS });
    place.read = last.number;
    return true;
  }

  async #try(pending: Pending): Promise<void> {
    const { event, waitMs } = pending;
    const isDone = await this.#post(event);
    if (this.#stop.signal.aborted && !isDone) return;
    this.tally[isDone ? 'delivered' : 'failed']++;
    const isTooOld = !isDone && Date.now() - event.at > GIVE_UP_MS;
    if (isTooOld) this.#drop(1, 'the server has not accepted it for an hour');
    if (isDone || isTooOld) this.#pending.delete(event.number);
    pending.dueAt = monotonicMs() + waitMs;
    pending.waitMs = Math.min(2 * waitMs, LONGEST_RETRY_MS);
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
    try {
      const response = await fetch(url, { method: 'POST', body, headers, signal, redirect: 'manual' });
      // The body may be of any size, and nobody needs it.
      await response.body?.cancel().catch(() => {});
      return response.ok;
    } catch {
      return false;
    }
  }

  #drop(count: number, why: string): void {
    if (count <= 0) return;
    this.tally.dropped += count;
    this.#parts.logger.warn({ count, why }, 'events were dropped before they were delivered');
  }
}
