import { untilAborted } from '../../base/abort.ts';
import { monotonicMs } from '../../base/monotonic.ts';
import type { Phase, Sandbox } from '../leases/sandbox.ts';
import { date } from '../leases/transitions.ts';
import { Changes, type FollowedRecord } from './changes.ts';

/** A record and its version, which changes with every write. */
export interface Stored {
  readonly sandbox: Sandbox;
  readonly version: string;
}

/** A sandbox that some gateway has to act on. */
export interface DueSandbox {
  readonly id: string;
  readonly host: string;
  readonly owner: string | null;
  readonly failures: number;
}

/** The sandboxes that some gateway has to act on. */
export interface Due {
  readonly sandboxes: readonly DueSandbox[];
  /** The time until the next one, in ms; 0 or less when there are more already, infinity when there is none. */
  readonly nextInMs: number;
}

export type Order = 'asc' | 'desc';

/**
 * A place in the order of the start of sandboxes; those that started in the same millisecond are in the order of their
 * ids.
 */
export interface Position {
  /** Unix ms. */
  readonly startedAt: number;
  readonly id: string;
}

/** Which part of the list of sandboxes is wanted. */
export interface PageQuery {
  readonly order: Order;
  /** Where the page begins, itself not included; null: at the first one. */
  readonly after: Position | null;
  /** The most records. */
  readonly limit: number;
  /** Those of this client; null: all. */
  readonly owner: string | null;
}

/** A part of the list of sandboxes. What is registered or removed meanwhile neither repeats nor hides others. */
export interface RecordPage {
  readonly sandboxes: readonly Sandbox[];
  /** Behind which the next page begins; null: there is none. */
  readonly next: Position | null;
}

/** Called with the id of a record that some gateway has changed; null: any may have been. */
export type OnChange = (id: string | null) => void;

/**
 * Keeps records. A sandbox that is overdue when it is written is due at that moment: behind all that were due before. A write names the version that was read, so that of two concurrent writes one fails and starts again.
 */
export interface Store extends AsyncDisposable {
  /** Whether no other gateway can open it at the same time. */
  readonly exclusive: boolean;
  /** Throws when records cannot be read or written now. */
  check(): Promise<void>;
  /** Calls `onChange` after each change from now on. */
  watch(onChange: OnChange): Promise<void>;
  /** A random key that all gateways of this registry share; the first one makes it. */
  key(): Promise<string>;
  /** Reads the record, and the clock that all gateways share (Unix ms). */
  read(id: string): Promise<{ readonly stored: Stored | null; readonly now: number }>;
  /** The same, but perhaps as it was a moment ago (docs/decisions/029-cached-look-ups.md); for decisions about requests. */
  look(id: string): Promise<ReadRecord>;
  /**
   * Writes a record, or removes it (null), if its version is still `expected` (null: there is none). Returns whether it
   * was.
   */
  write(id: string, sandbox: Sandbox | null, expected: string | null): Promise<boolean>;
  /**
   * Whether a port is that of a daemon at the address, or may be: daemons at host names may be anywhere. Null: the address
   * is not known, so the port must be that of no daemon at all.
   */
  isDaemon(ip: string | null, port: number): Promise<boolean>;
  page(query: PageQuery): Promise<RecordPage>;
  countPhases(): Promise<Readonly<Record<Phase, number>>>;
  /** At most `limit` of them behind the first `offset`, the longest due first. */
  due(limit: number, offset: number): Promise<Due>;
  /** Ids of at most `limit` sandboxes that no gateway ever has to act on. */
  endless(limit: number): Promise<readonly string[]>;
}

/** How many records of a list are read at a time. */
const PAGE = 500;
/** When a record is looked at again whose change was not announced, in ms. */
const MISSED_MS = 500;

/** A change of a record: returns the new one, the same one to leave it, or null to remove it. Throws to refuse. */
export type Change = (sandbox: Sandbox, now: number) => Sandbox | null;

/** A record, and the clock that all gateways share (Unix ms). */
export interface ReadRecord {
  readonly sandbox: Sandbox | null;
  readonly now: number;
}

/** The records of all sandboxes. A change is atomic, also between gateways. */
export class Registry {
  readonly #store: Store;
  readonly #changes = new Changes();

  constructor(store: Store) {
    this.#store = store;
  }

  /** Throws when records cannot be read or written now. */
  check(): Promise<void> {
    return this.#store.check();
  }

  async find(id: string): Promise<ReadRecord> {
    const { stored, now } = await this.#store.read(id);
    return { sandbox: stored?.sandbox ?? null, now };
  }

  /** The same as of a moment ago, for decisions about requests. A change that this gateway has made counts at once. */
  look(id: string): Promise<ReadRecord> {
    return this.#store.look(id);
  }

  /** Makes or replaces a record. */
  async put(id: string, make: (before: Sandbox | null, now: number) => Sandbox): Promise<Sandbox> {
    for (;;) {
      const { stored, now } = await this.#store.read(id);
      const sandbox = make(stored?.sandbox ?? null, now);
      if (await this.#store.write(id, sandbox, stored?.version ?? null)) return sandbox;
    }
  }

  /** Changes a record. Null: this change has removed it; undefined: there is none. */
  async change(id: string, change: Change): Promise<Sandbox | null | undefined> {
    for (;;) {
      const { stored, now } = await this.#store.read(id);
      if (!stored) return undefined;
      const sandbox = change(stored.sandbox, now);
      if (sandbox === stored.sandbox) return sandbox;
      if (await this.#store.write(id, sandbox, stored.version)) return sandbox;
    }
  }

  /** Notes from now on whether any gateway changes a record, as far as that is announced. Call `watch` before. */
  follow(id: string): FollowedRecord {
    return this.#changes.follow(id);
  }

  watch(onChange: OnChange): Promise<void> {
    return this.#store.watch((id) => {
      this.#changes.announce(id);
      onChange(id);
    });
  }

  /**
   * Looks at a record after each change, until `look` returns something, which is returned. Undefined: it has not within
   * `ms`, or `signal` has aborted.
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

  page(query: PageQuery): Promise<RecordPage> {
    return this.#store.page(query);
  }

  /** All records, or those of one client; read in pages, while they change. */
  async *list(owner: string | null = null): AsyncGenerator<Sandbox> {
    for (let after: Position | null = null; ; ) {
      const { sandboxes, next } = await this.#store.page({ order: 'asc', limit: PAGE, after, owner });
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
   * Has all paused sandboxes forgotten after `keptMs` that are to be kept for ever: an earlier version has paused them,
   * or a gateway that was told so.
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

  /** Drops the claims of earlier gateways, if no other gateway can be running. */
  async dropClaims(): Promise<void> {
    if (!this.#store.exclusive) return;
    for await (const { id, claim } of this.list()) {
      if (claim) await this.change(id, (sandbox) => ({ ...sandbox, claim: null }));
    }
  }
}
