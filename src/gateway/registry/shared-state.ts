import type { OwnerQuota } from '../access/quotas.ts';
import type { SandboxEvent } from '../leases/events.ts';
import type { Usage } from '../leases/usage.ts';

/** So many events are kept, of all sandboxes together. */
export const MOST_EVENTS = 10_000;

/** An event that is kept. */
export interface StoredEvent extends SandboxEvent {
  /** The number of the event. There is one for each event, without a gap. */
  readonly number: number;
  /** The time of the event, in Unix ms. */
  readonly at: number;
}

/** A write of a record does this too, or nothing of it. */
export interface WriteOptions {
  readonly events?: readonly SandboxEvent[];
  /** The new record is a creation, which counts for this quota of its owner. */
  readonly quota?: OwnerQuota;
}

/** What a registry keeps beside its records, for all gateways together. Operations throw `unavailable` as those of the registry do. */
export interface SharedState {
  /** Returns the number of records of a client. */
  countOf(owner: string): Promise<number>;
  /** Returns at most `limit` events behind the one with the number `after`. Those that are no longer kept are left out. */
  events(after: number, limit: number): Promise<readonly StoredEvent[]>;
  /**
   * Claims or renews the delivery of events for the gateway `owner`, for `ms`. Returns the number of the last event that is
   * delivered, after this has been set to `delivered` if that is not null. Returns null if another gateway delivers. The first
   * delivery begins with later events.
   */
  deliver(owner: string, ms: number, delivered: number | null): Promise<number | null>;
  /** Returns for how long sandboxes have run, also those that are gone. */
  usage(): Promise<readonly Usage[]>;
  /** Returns the hosts that are drained. */
  drained(): Promise<ReadonlySet<string>>;
  setDrained(host: string, isDrained: boolean): Promise<void>;
}
