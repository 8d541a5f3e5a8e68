import { randomBytes, randomUUID } from 'node:crypto';
import { type FileHandle, open } from 'node:fs/promises';
import { DatabaseSync, type StatementSync } from 'node:sqlite';
import { EnvdError, messageOf } from '../../base/errors.ts';
import {
  CLOSED_MS,
  DAEMON_PORT,
  dueAt,
  PHASES,
  type Phase,
  readRecord,
  type Sandbox,
} from '../leases/sandbox.ts';
import { DiskSync } from './disk-sync.ts';
import { type Due, dueSandboxOf } from './due.ts';
import { EmbeddedState, STATE_SCHEMA } from './embedded-state.ts';
import { restrictFiles } from './private-files.ts';
import type {
  OnChange,
  Order,
  PageQuery,
  Position,
  ReadRecord,
  RecordPage,
  Store,
  Stored,
} from './registry.ts';
import type { WriteOptions } from './shared-state.ts';
import { steadyNow } from './steady-now.ts';

const portOf = (row: 'OLD' | 'NEW') => `json_extract(${row}.record, '$.port')`;
const ipOf = (row: 'OLD' | 'NEW') => `ifnull(json_extract(${row}.record, '$.ip'), '')`;
/** The time in Unix ms. */
const NOW = `unixepoch('subsec') * 1000`;
/** Remembers the endpoint of a daemon that has no record any more. */
const KEEP_CLOSED = `
  DELETE FROM left_daemons WHERE closed_until < ${NOW};
  INSERT OR REPLACE INTO left_daemons VALUES (${portOf('OLD')}, ${ipOf('OLD')}, ${NOW} + ${CLOSED_MS});`;

const SCHEMA = `
  CREATE TABLE IF NOT EXISTS sandboxes (
    id TEXT PRIMARY KEY, version TEXT NOT NULL, attention REAL NOT NULL, record TEXT NOT NULL
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX IF NOT EXISTS by_attention ON sandboxes (attention);
  CREATE INDEX IF NOT EXISTS by_daemon
    ON sandboxes (json_extract(record, '$.port'), ifnull(json_extract(record, '$.ip'), ''));
  CREATE INDEX IF NOT EXISTS by_start ON sandboxes (json_extract(record, '$.startedAt'), id);
  CREATE INDEX IF NOT EXISTS by_owner
    ON sandboxes (json_extract(record, '$.owner'), json_extract(record, '$.startedAt'), id);
  CREATE INDEX IF NOT EXISTS by_phase ON sandboxes (json_extract(record, '$.phase'));
  CREATE TABLE IF NOT EXISTS gateway (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
  CREATE TABLE IF NOT EXISTS left_daemons (
    port INTEGER, ip TEXT, closed_until REAL NOT NULL, PRIMARY KEY (port, ip)
  ) STRICT, WITHOUT ROWID;
  CREATE TRIGGER IF NOT EXISTS removed AFTER DELETE ON sandboxes
    WHEN ${portOf('OLD')} <> ${DAEMON_PORT} BEGIN ${KEEP_CLOSED} END;
  CREATE TRIGGER IF NOT EXISTS moved AFTER UPDATE ON sandboxes
    WHEN ${portOf('OLD')} <> ${DAEMON_PORT} AND (${portOf('OLD')} <> ${portOf('NEW')} OR ${ipOf('OLD')} <> ${ipOf('NEW')})
    BEGIN ${KEEP_CLOSED} END;
  PRAGMA user_version = 1;
  ${STATE_SCHEMA}
`;

type Row = Readonly<Record<string, unknown>>;

const BEFORE_ALL: Position = { startedAt: -1, id: '' };
const BEHIND_ALL: Position = { startedAt: Number.MAX_SAFE_INTEGER, id: '' };
/**
 * Keeps records in a SQLite database, for one gateway at a time. Writes are atomic. They survive a crash of the gateway, and
 * a crash of the machine once `write` has resolved.
 */
export class EmbeddedStore implements Store {
  readonly exclusive = true;
  readonly shared: EmbeddedState;
  readonly #database: DatabaseSync;
  readonly #log: FileHandle;
  readonly #sync: DiskSync;
  readonly #read: StatementSync;
  readonly #pages: Readonly<Record<Order, StatementSync>>;
  readonly #pagesOfOwner: Readonly<Record<Order, StatementSync>>;
  readonly #phases: StatementSync;
  readonly #daemon: StatementSync;
  readonly #due: StatementSync;
  readonly #next: StatementSync;
  readonly #endless: StatementSync;
  readonly #insert: StatementSync;
  readonly #update: StatementSync;
  readonly #remove: StatementSync;
  #onChange: OnChange = () => {};

  private constructor(database: DatabaseSync, log: FileHandle) {
    this.#database = database;
    this.#log = log;
    // datasync() runs in the thread pool, so it does not block the event loop.
    this.#sync = new DiskSync(() => log.datasync());
    const table = 'sandboxes';
    this.#read = database.prepare(`SELECT version, record FROM ${table} WHERE id = ?`);
    this.#daemon = database.prepare(
      `SELECT 1 FROM ${table} WHERE json_extract(record, '$.port') = $port
       AND ($ip IS NULL OR ifnull(json_extract(record, '$.ip'), '') IN ($ip, ''))
       UNION ALL SELECT 1 FROM left_daemons WHERE port = $port AND ($ip IS NULL OR ip IN ($ip, ''))
       AND closed_until >= $now LIMIT 1`,
    );
    const start = `json_extract(record, '$.startedAt')`;
    const pages = (where: string) => {
      const page = (comparison: '<' | '>', order: Order) =>
        database.prepare(
          `SELECT id, ${start} AS startedAt, record FROM ${table} WHERE ${where} (${start}, id) ${comparison} (?, ?)
           ORDER BY ${start} ${order}, id ${order} LIMIT ?`,
        );
      return { asc: page('>', 'asc'), desc: page('<', 'desc') };
    };
    this.#pages = pages('');
    this.#pagesOfOwner = pages(`json_extract(record, '$.owner') = ? AND`);
    const phase = `json_extract(record, '$.phase')`;
    this.#phases = database.prepare(
      `SELECT ${phase} AS phase, COUNT(*) AS count FROM ${table} GROUP BY ${phase}`,
    );
    this.#due = database.prepare(
      `SELECT record FROM ${table} WHERE attention <= ? ORDER BY attention LIMIT ? OFFSET ?`,
    );
    this.#next = database.prepare(`SELECT MIN(attention) AS at FROM ${table} WHERE attention > ?`);
    this.#endless = database.prepare(`SELECT id FROM ${table} WHERE attention = ? LIMIT ?`);
    this.#insert = database.prepare(
      `INSERT OR IGNORE INTO ${table} (version, attention, record, id) VALUES (?, ?, ?, ?)`,
    );
    this.#update = database.prepare(
      `UPDATE ${table} SET version = ?, attention = ?, record = ? WHERE id = ? AND version = ?`,
    );
    this.#remove = database.prepare(`DELETE FROM ${table} WHERE id = ? AND version = ?`);
    this.shared = new EmbeddedState(database, this.#sync);
    if (!this.shared.isNew) return;
    for (const row of database.prepare(`SELECT record FROM ${table}`).iterate())
      for (const sandbox of readable(row)) this.shared.meter(null, sandbox, steadyNow());
  }

  /**
   * Opens or creates the database. Throws `unavailable` when another gateway has the file open, and `invalid_argument` when
   * it cannot be used.
   */
  static async open(path: string): Promise<EmbeddedStore> {
    let database: DatabaseSync | null = null;
    try {
      await restrictFiles(path);
      database = new DatabaseSync(path);
      // The lock is exclusive, because two gateways with one file would both expire the same sandboxes.
      database.exec(
        'PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL',
      );
      database.exec(SCHEMA);
      return new EmbeddedStore(database, await open(`${path}-wal`, 'r'));
    } catch (error) {
      database?.close();
      if (/database is locked/.test(messageOf(error))) {
        throw new EnvdError(
          'unavailable',
          `the registry ${path} is in use by another gateway: stop that one, or set --registry`,
          {
            cause: error,
          },
        );
      }
      throw new EnvdError('invalid_argument', `cannot use the registry ${path}: ${messageOf(error)}`, {
        cause: error,
      });
    }
  }

  async check(): Promise<void> {
    this.#read.get('');
  }

  /** A database file loses no records while it is open. */
  assertKept(): void {}

  async watch(onChange: OnChange): Promise<void> {
    this.#onChange = onChange;
  }

  async key(): Promise<string> {
    const made = randomBytes(32).toString('hex');
    this.#database.prepare(`INSERT OR IGNORE INTO gateway (name, value) VALUES ('key', ?)`).run(made);
    return String(this.#database.prepare(`SELECT value FROM gateway WHERE name = 'key'`).get()?.value);
  }

  async read(id: string): Promise<{ readonly stored: Stored | null; readonly now: number }> {
    const row = this.#read.get(id);
    const stored = row ? { sandbox: readRecord(String(row.record)), version: String(row.version) } : null;
    return { stored, now: steadyNow() };
  }

  async look(id: string): Promise<ReadRecord> {
    const { stored, now } = await this.read(id);
    return { sandbox: stored?.sandbox ?? null, now };
  }

  async write(
    id: string,
    sandbox: Sandbox | null,
    expected: string | null,
    options: WriteOptions = {},
  ): Promise<boolean> {
    const isWritten = await this.#sync.durably(() => this.#writeAll(id, sandbox, expected, options));
    if (isWritten) this.#onChange(id);
    return isWritten;
  }

  /** Writes a record and what belongs to it, or nothing. */
  #writeAll(
    id: string,
    sandbox: Sandbox | null,
    expected: string | null,
    { events = [], quota }: WriteOptions,
  ): boolean {
    const now = steadyNow();
    this.#database.exec('BEGIN');
    try {
      const row = this.#read.get(id);
      if (quota && sandbox?.owner && !row) this.shared.admit(sandbox.owner, quota, now);
      const isWritten = this.#writeNow(id, sandbox, expected);
      if (isWritten) {
        this.shared.meter(row ? readRecord(String(row.record)) : null, sandbox, now);
        this.shared.add(events, now);
      }
      this.#database.exec('COMMIT');
      return isWritten;
    } catch (error) {
      // A full disk may have ended the transaction.
      if (this.#database.isTransaction) this.#database.exec('ROLLBACK');
      throw error;
    }
  }

  #writeNow(id: string, sandbox: Sandbox | null, expected: string | null): boolean {
    if (!sandbox) return this.#remove.run(id, expected).changes === 1;
    const columns = [
      randomUUID(),
      Math.max(dueAt(sandbox), steadyNow()),
      JSON.stringify(sandbox),
      id,
    ] as const;
    const { changes } =
      expected === null ? this.#insert.run(...columns) : this.#update.run(...columns, expected);
    return changes === 1;
  }

  async isDaemon(ip: string | null, port: number): Promise<boolean> {
    return this.#daemon.get({ port, ip, now: Date.now() }) !== undefined;
  }

  async page({ order, after, limit, owner }: PageQuery): Promise<RecordPage> {
    const { startedAt, id } = after ?? (order === 'asc' ? BEFORE_ALL : BEHIND_ALL);
    const rows =
      owner === null
        ? this.#pages[order].all(startedAt, id, limit)
        : this.#pagesOfOwner[order].all(owner, startedAt, id, limit);
    const last = rows.length === limit ? rows.at(-1) : undefined;
    return {
      sandboxes: rows.flatMap(readable),
      malformed: rows.flatMap((row) => (readable(row).length > 0 ? [] : [String(row.id)])),
      next: last ? { startedAt: Number(last.startedAt), id: String(last.id) } : null,
    };
  }

  async countPhases(): Promise<Readonly<Record<Phase, number>>> {
    const counts = new Map(this.#phases.all().map(({ phase, count }) => [phase, Number(count)]));
    return Object.fromEntries(PHASES.map((phase) => [phase, counts.get(phase) ?? 0])) as Record<
      Phase,
      number
    >;
  }

  async due(limit: number, offset: number): Promise<Due> {
    const now = steadyNow();
    const sandboxes = this.#due.all(now, limit, offset).flatMap(readable).map(dueSandboxOf);
    const at = this.#next.get(now)?.at;
    return { sandboxes, nextInMs: typeof at === 'number' ? at - now : Number.POSITIVE_INFINITY };
  }

  async endless(limit: number): Promise<readonly string[]> {
    return this.#endless.all(Number.POSITIVE_INFINITY, limit).map(({ id }) => String(id));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#log.close();
    this.#database.close();
  }
}

function readable(row: Row): readonly Sandbox[] {
  const sandbox = readRecord(String(row.record));
  return sandbox ? [sandbox] : [];
}
