import { untilAborted } from '../../base/abort.ts';
import { monotonicMs } from '../../base/monotonic.ts';
import type { OwnerQuota } from '../access/quotas.ts';
import { eventsOf } from '../leases/events.ts';
import type { Phase, Sandbox } from '../leases/sandbox.ts';
import { date } from '../leases/transitions.ts';
import { Changes, type FollowedRecord } from './changes.ts';
import type { Due } from './due.ts';
import type { SharedState, WriteOptions } from './shared-state.ts';

/** A record with its version, which changes with every write. */
export interface Stored {
  /** It is null if the record is malformed. */
  readonly sandbox: Sandbox | null;
  readonly version: string;
}

export type Order = 'asc' | 'desc';

/** A position in the order in which sandboxes started. Those that started in the same millisecond are ordered by their ids. */
export interface Position {
  /** The start of the sandbox, in Unix ms. */
  readonly startedAt: number;
  readonly id: string;
}

/** Describes a page of the list of sandboxes. */
export interface PageQuery {
  readonly order: Order;
  /** The page begins behind this position. If it is null, the page begins with the first sandbox. */
  readonly after: Position | null;
  /** The maximum number of records. */
  readonly limit: number;
  /** Only sandboxes of this client are listed. If it is null, all are. */
  readonly owner: string | null;
}

/** A page of the list of sandboxes. Registrations and removals between two pages neither repeat nor hide other sandboxes. */
export interface RecordPage {
  readonly sandboxes: readonly Sandbox[];
  /** The ids of records that are left out because they are malformed. */
  readonly malformed: readonly string[];
  /** The next page begins behind this position. It is null if there is no next page. */
  readonly next: Position | null;
}

/** Is called with the id of a record that some gateway has changed, or with null if any record may have changed. */
export type OnChange = (id: string | null) => void;

/**
 * Keeps records. A sandbox that is overdue when it is written becomes due at that moment, behind all that were due before. A
 * write names the version that was read, so that one of two concurrent writes fails and starts again. Operations throw
 * `unavailable` when the registry does not answer.
 */
export interface Store extends AsyncDisposable {
  /** True if no other gateway can open the store at the same time. */
  readonly exclusive: boolean;
  readonly shared: SharedState;
  /** Throws if records cannot be read or written now, or if records are lost or may be. */
  check(): Promise<void>;
  /** Throws `unavailable` if records were lost or may be, as far as that is known. */
  assertKept(): void;
  /** Calls `onChange` after each later change. */
  watch(onChange: OnChange): Promise<void>;
  /** Returns a random secret that all gateways of this registry share. The first gateway makes it. */
  key(): Promise<string>;
  /** Returns the record, and the time by the clock that all gateways share (Unix ms). */
  read(id: string): Promise<{ readonly stored: Stored | null; readonly now: number }>;
  /** Returns the same for decisions about requests, perhaps as of a moment ago (docs/decisions/029-cached-look-ups.md). */
  look(id: string): Promise<ReadRecord>;
  /**
   * Writes a record, or removes it if `sandbox` is null. Does so only if its version is still `expected`, which is null for a
   * new record. Returns whether it did. Throws `QuotaReached` if a quota is reached.
   */
  write(
    id: string,
    sandbox: Sandbox | null,
    expected: string | null,
    options?: WriteOptions,
  ): Promise<boolean>;
  /**
   * Returns whether a port belongs, or may belong, to a daemon at the address `ip`. Daemons at host names may be at any
   * address. If `ip` is null, the address is not known, so a daemon at any address counts. A daemon counts for `CLOSED_MS` after
   * its record is gone. The port 49983 is never asked for, because it names the daemon of each sandbox.
   */
  isDaemon(ip: string | null, port: number): Promise<boolean>;
  page(query: PageQuery): Promise<RecordPage>;
  countPhases(): Promise<Readonly<Record<Phase, number>>>;
  /** Returns at most `limit` sandboxes that are due, the longest due first, without the first `offset`. */
  due(limit: number, offset: number): Promise<Due>;
  /** Returns ids of at most `limit` sandboxes on which no gateway ever has to act. */
  endless(limit: number): Promise<readonly string[]>;
}

/** So many records of a list are read at a time. */
const PAGE = 500;
/** A record is read again after this time, in ms, because its change may not have been announced. */
const MISSED_MS = 500;

/** Returns the new record, the same one to leave it unchanged, or null to remove it. Throws to refuse. `now` is in Unix ms. */
export type Change = (sandbox: Sandbox, now: number) => Sandbox | null;

/** A record, and the time by the clock that all gateways share (Unix ms). */
export interface ReadRecord {
  readonly sandbox: Sandbox | null;
  readonly now: number;
}

/** The records of all sandboxes. Changes are atomic, even between gateways. Throws what its store throws. */
export class Registry {
  readonly #store: Store;
  readonly #changes = new Changes();
  readonly #malformed = new Set<string>();
  readonly #onMalformed: (id: string) => void;

  /** @param onMalformed is called once for each malformed record that is found */
  constructor(store: Store, onMalformed: (id: string) => void = () => {}) {
    this.#store = store;
    this.#onMalformed = onMalformed;
  }

  get shared(): SharedState {
    return this.#store.shared;
  }

  /** Throws if records cannot be read or written now. */
  check(): Promise<void> {
    return this.#store.check();
  }

  /** Throws `unavailable` if records were lost or may be, as far as that is known. */
  assertKept(): void {
    this.#store.assertKept();
  }

  /** Returns the current record, or null as `sandbox` if there is none. */
  async find(id: string): Promise<ReadRecord> {
    const { stored, now } = await this.#store.read(id);
    return { sandbox: stored?.sandbox ?? null, now };
  }

  /** Returns the same as of a moment ago, for decisions about requests. A change that this gateway has made counts at once. */
  look(id: string): Promise<ReadRecord> {
    return this.#store.look(id);
  }

  /**
   * Creates or replaces a record. Calls `make` again if the record changes meanwhile. Throws what `make` throws, and `QuotaReached`
   * if the record is a creation that counts for `quota`.
   */
  async put(
    id: string,
    make: (before: Sandbox | null, now: number) => Sandbox,
    quota?: OwnerQuota,
  ): Promise<Sandbox> {
    for (;;) {
      const { stored, now } = await this.#store.read(id);
      const before = stored?.sandbox ?? null;
      const sandbox = make(before, now);
      const options = { events: eventsOf(before, sandbox, now), ...(quota && { quota }) };
      if (await this.#store.write(id, sandbox, stored?.version ?? null, options)) return sandbox;
    }
  }

  /**
   * Changes a record, and returns it. Returns null if this change has removed it, and undefined if there is none. Calls
   * `change` again if the record changes meanwhile. Throws what `change` throws.
   */
  async change(id: string, change: Change): Promise<Sandbox | null | undefined> {
    for (;;) {
      const { stored, now } = await this.#store.read(id);
      if (!stored?.sandbox) return undefined;
      const sandbox = change(stored.sandbox, now);
      if (sandbox === stored.sandbox) return sandbox;
      const options = { events: eventsOf(stored.sandbox, sandbox, now) };
      if (await this.#store.write(id, sandbox, stored.version, options)) return sandbox;
    }
  }

  /** Follows later changes of a record by any gateway, as far as they are announced. `watch` must have been called before. */
  follow(id: string): FollowedRecord {
    return this.#changes.follow(id);
  }

  /** Calls `onChange` after each later change. May be called once. */
  watch(onChange: OnChange): Promise<void> {
    return this.#store.watch((id) => {
      this.#changes.announce(id);
      onChange(id);
    });
  }

  /**
   * Calls `look` now and after each change of a record, until it returns something, which is returned. Returns undefined
   * after `ms`, or when `signal` aborts. Throws what `look` throws.
   */
  async until<T>(
    id: string,
    ms: number,
    look: (look: ReadRecord) => T | undefined | Promise<T | undefined>,
    signal?: AbortSignal,
  ): Promise<T | undefined> {
    const end = monotonicMs() + ms;
    for (;;) {
      const left = end - monotonicMs();
      if (left <= 0 || signal?.aborted) return undefined;
      const next = this.#changes.next(id, Math.min(left, MISSED_MS));
      try {
        const found = await look(await this.find(id));
        if (found !== undefined) return found;
        await (signal ? untilAborted(next.changed, signal).catch(() => {}) : next.changed);
      } finally {
        next.forget();
      }
    }
  }

  isDaemon(ip: string | null, port: number): Promise<boolean> {
    return this.#store.isDaemon(ip, port);
  }

  /** A malformed record is left out of a page, so that it does not hide the others. */
  async page(query: PageQuery): Promise<RecordPage> {
    const page = await this.#store.page(query);
    for (const id of page.malformed) {
      if (!this.#malformed.has(id)) this.#onMalformed(id);
      this.#malformed.add(id);
    }
    return page;
  }

  /** Yields all records, or those of one client. They may change meanwhile, because they are read in pages. */
  async *list(owner: string | null = null): AsyncGenerator<Sandbox> {
    for (let after: Position | null = null; ; ) {
      const { sandboxes, next } = await this.page({ order: 'asc', limit: PAGE, after, owner });
      yield* sandboxes;
      if (!next) return;
      after = next;
    }
  }

  /** The number of sandboxes in each phase. */
  countPhases(): Promise<Readonly<Record<Phase, number>>> {
    return this.#store.countPhases();
  }

  due(limit: number, offset: number): Promise<Due> {
    return this.#store.due(limit, offset);
  }

  /**
   * Gives all paused sandboxes that would never be forgotten a time at which they are, `keptMs` from now. Such records come
   * from earlier versions, and from gateways with `--keep-paused 0`.
   */
  async dateEndless(keptMs: number, signal: AbortSignal): Promise<void> {
    for (;;) {
      const ids = await this.#store.endless(PAGE);
      for (const id of ids) {
        if (signal.aborted) return;
        await this.change(id, (sandbox, now) => date(sandbox, keptMs, now));
      }
      if (ids.length < PAGE) return;
    }
  }

  /** Drops the claims of earlier gateways if no other gateway can be running, so that work continues at once. */
  async dropClaims(): Promise<void> {
    if (!this.#store.exclusive) return;
    for await (const { id, claim } of this.list()) {
      if (claim) await this.change(id, (sandbox) => ({ ...sandbox, claim: null }));
    }
  }
}
