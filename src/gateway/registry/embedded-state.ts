import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { type OwnerQuota, QuotaReached, takeCreate } from '../access/quotas.ts';
import type { SandboxEvent } from '../leases/events.ts';
import type { Sandbox } from '../leases/sandbox.ts';
import { commonUsageKeyOf, MOST_USAGES, readUsage, type Usage, usageKeyOf } from '../leases/usage.ts';
import type { DiskSync } from './disk-sync.ts';
import { MOST_EVENTS, type SharedState, type StoredEvent } from './shared-state.ts';
import { steadyNow } from './steady-now.ts';

export const STATE_SCHEMA = `
  CREATE TABLE IF NOT EXISTS events (
    number INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, event TEXT NOT NULL
  ) STRICT;
  CREATE TABLE IF NOT EXISTS usage (
    key TEXT PRIMARY KEY, running INTEGER NOT NULL, sum REAL NOT NULL, at REAL NOT NULL
  ) STRICT, WITHOUT ROWID;
  CREATE TABLE IF NOT EXISTS creates (owner TEXT PRIMARY KEY, emptyAt REAL NOT NULL) STRICT, WITHOUT ROWID;
  CREATE TABLE IF NOT EXISTS drained (host TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
`;

/**
 * What the embedded registry keeps beside the records: events, the time for which sandboxes have run, creations, and hosts that are
 * drained.
 */
export class EmbeddedState implements SharedState {
  /** True if nothing has been counted yet. */
  readonly isNew: boolean;
  readonly #database: DatabaseSync;
  readonly #sync: DiskSync;
  readonly #add: StatementSync;
  readonly #trim: StatementSync;
  readonly #usageOf: StatementSync;
  readonly #setUsage: StatementSync;

  constructor(database: DatabaseSync, sync: DiskSync) {
    this.#database = database;
    this.#sync = sync;
    this.#add = database.prepare('INSERT INTO events (at, event) VALUES (?, ?)');
    this.#trim = database.prepare('DELETE FROM events WHERE number <= ?');
    this.#usageOf = database.prepare('SELECT running, sum, at FROM usage WHERE key = ?');
    this.#setUsage = database.prepare(
      'INSERT OR REPLACE INTO usage (key, running, sum, at) VALUES (?, ?, ?, ?)',
    );
    this.isNew = this.#countUsages() === 0;
  }

  async countOf(owner: string): Promise<number> {
    return this.#countOf(owner);
  }

  #countOf(owner: string): number {
    const count = `SELECT COUNT(*) AS count FROM sandboxes WHERE json_extract(record, '$.owner') = ?`;
    return Number(this.#database.prepare(count).get(owner)?.count ?? 0);
  }

  /** Counts a creation. Throws `QuotaReached`. */
  admit(owner: string, { sandboxes, creates }: OwnerQuota, now: number): void {
    if (sandboxes !== undefined && this.#countOf(owner) >= sandboxes)
      throw QuotaReached.sandboxes(owner, sandboxes);
    if (creates === undefined) return;
    const row = this.#database.prepare('SELECT emptyAt FROM creates WHERE owner = ?').get(owner);
    const taken = takeCreate(Number(row?.emptyAt ?? 0), creates, now);
    if ('waitMs' in taken) throw QuotaReached.creates(owner, creates, taken.waitMs);
    this.#database
      .prepare('INSERT OR REPLACE INTO creates (owner, emptyAt) VALUES (?, ?)')
      .run(owner, taken.emptyAt);
  }

  add(events: readonly SandboxEvent[], now: number): void {
    for (const event of events) {
      const { lastInsertRowid } = this.#add.run(now, JSON.stringify(event));
      this.#trim.run(Number(lastInsertRowid) - MOST_EVENTS);
    }
  }

  async events(after: number, limit: number): Promise<readonly StoredEvent[]> {
    return this.#database
      .prepare('SELECT number, at, event FROM events WHERE number > ? ORDER BY number LIMIT ?')
      .all(after, limit)
      .map(({ number, at, event }) => {
        return { number: Number(number), at: Number(at), ...(JSON.parse(String(event)) as SandboxEvent) };
      });
  }

  /** No other gateway has the file open. */
  async deliver(_owner: string, _ms: number, delivered: number | null): Promise<number> {
    if (delivered !== null) await this.#sync.durably(() => this.#setDelivered(delivered));
    return this.#delivered();
  }

  /** Returns the number of the last event that is delivered. The first call makes it the last event. */
  #delivered(): number {
    const row = this.#database.prepare(`SELECT value FROM gateway WHERE name = 'delivered'`).get();
    if (row) return Number(row.value);
    const last = this.#database.prepare('SELECT max(number) AS number FROM events').get();
    this.#setDelivered(Number(last?.number ?? 0));
    return Number(last?.number ?? 0);
  }

  #setDelivered(number: number): boolean {
    const set = `INSERT OR REPLACE INTO gateway (name, value) VALUES ('delivered', ?)`;
    return this.#database.prepare(set).run(String(number)).changes > 0;
  }

  /** Counts the time of a sandbox up to a change of its record. */
  meter(before: Sandbox | null, after: Sandbox | null, now: number): void {
    const [used, key] = [this.#keyOf(before), this.#keyOf(after)];
    if (used === key) return;
    if (used !== '') this.#meter(used, -1, now);
    if (key !== '') this.#meter(key, 1, now);
  }

  #meter(key: string, by: number, now: number): void {
    const { running = 0, sum = 0, at = now } = this.#usageOf.get(key) ?? {};
    const later = Math.max(now, Number(at));
    this.#setUsage.run(
      key,
      Number(running) + by,
      Number(sum) + Number(running) * (later - Number(at)),
      later,
    );
  }

  /** No row is ever removed, so the key of a record that has not changed stays the same. */
  #keyOf(sandbox: Sandbox | null): string {
    const key = usageKeyOf(sandbox);
    const isOwn = key === '' || this.#usageOf.get(key) !== undefined || this.#countUsages() < MOST_USAGES;
    return isOwn ? key : commonUsageKeyOf(sandbox);
  }

  #countUsages(): number {
    return Number(this.#database.prepare('SELECT COUNT(*) AS count FROM usage').get()?.count ?? 0);
  }

  async usage(): Promise<readonly Usage[]> {
    const now = steadyNow();
    const rows = this.#database.prepare('SELECT key, running, sum, at FROM usage').all();
    return rows.map(({ key, running, sum, at }) =>
      readUsage(String(key), Number(sum) + Number(running) * Math.max(0, now - Number(at))),
    );
  }

  async drained(): Promise<ReadonlySet<string>> {
    return new Set(
      this.#database
        .prepare('SELECT host FROM drained')
        .all()
        .map(({ host }) => String(host)),
    );
  }

  async setDrained(host: string, isDrained: boolean): Promise<void> {
    const change = isDrained
      ? 'INSERT OR IGNORE INTO drained (host) VALUES (?)'
      : 'DELETE FROM drained WHERE host = ?';
    await this.#sync.durably(() => this.#database.prepare(change).run(host).changes > 0);
  }
}
