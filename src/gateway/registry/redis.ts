import { randomBytes, randomUUID } from 'node:crypto';
import type { Logger } from 'pino';
import { QuotaReached } from '../access/quotas.ts';
import { dueAt, PHASES, type Phase, readRecord, type Sandbox } from '../leases/sandbox.ts';
import type { Due } from './due.ts';
import { LookCache } from './look-cache.ts';
import { type OnMessage, RedisLink, type Server } from './redis-link.ts';
import { BARRIER, fieldsOf, KEYS, optionsOf, SHARED_KEY } from './redis-scripts.ts';
import { RedisState } from './redis-state.ts';
import type { OnChange, PageQuery, ReadRecord, RecordPage, Store, Stored } from './registry.ts';
import { Retention } from './retention.ts';
import type { SharedState, WriteOptions } from './shared-state.ts';

/** So many records are put into the lists at a time, so that other commands can run in between. */
const ENTERED = 500;
const DAEMON_TOLD = /^daemon:(\d+)$/;

/** Keeps records in a Redis server that several gateways share. Each write is one script, which Redis runs atomically. */
export class RedisStore implements Store {
  readonly exclusive = false;
  readonly shared: SharedState;
  readonly #link: RedisLink;
  readonly #cache: LookCache;
  readonly #retention: Retention;
  #onChange: OnChange = () => {};

  private constructor(link: RedisLink, cache: LookCache, retention: Retention) {
    this.#link = link;
    this.shared = new RedisState(link);
    this.#retention = retention;
    this.#cache = cache;
  }

  /**
   * Connects to the server, and later reconnects by itself. Throws `unavailable` when it cannot be reached, and
   * `invalid_argument`.
   */
  static async open(server: Server, logger: Logger): Promise<RedisStore> {
    let onMessage: OnMessage = () => {};
    const link = await RedisLink.open(server, (message) => onMessage(message), logger);
    const cache = new LookCache({
      read: async (id) => {
        const { stored, now } = await read(link, id);
        return { sandbox: stored?.sandbox ?? null, now };
      },
      isDaemon: (ip, port) => isDaemon(link, ip, port),
      beat: () => link.run((client) => client.ping()),
    });
    const store = new RedisStore(link, cache, new Retention(link, logger));
    onMessage = (message) => store.#onMessage(message);
    await store.#enterAll();
    return store;
  }

  async watch(onChange: OnChange): Promise<void> {
    this.#onChange = onChange;
  }

  #onMessage(message: string | null): void {
    const [, port] = DAEMON_TOLD.exec(message ?? '') ?? [];
    if (port !== undefined) {
      this.#cache.forgetPort(Number(port));
      return;
    }
    if (message === null) this.#cache.forgetAll();
    else this.#cache.forget(message);
    this.#onChange(message);
  }

  /** Puts all records into the lists when some are missing, because an earlier version has no lists. */
  async #enterAll(): Promise<void> {
    const [all, listed] = await this.#link.run((client) =>
      Promise.all([client.zCard(KEYS.attention), client.zCard(KEYS.started)]),
    );
    for (let first = 0; listed < all && first < all; first += ENTERED) {
      await this.#link.run(async (client) => {
        const ids = await client.zRange(KEYS.attention, first, first + ENTERED - 1);
        await client.enterRecords(KEYS.attention, ids);
      });
    }
  }

  /** Writes, because a server whose disk or memory is full still answers reads. */
  async check(): Promise<void> {
    await this.#link.run((client) => client.set(BARRIER, ''));
    await this.#retention.inspect();
    this.#retention.assertKept();
  }

  assertKept(): void {
    this.#retention.assertKept();
  }

  async key(): Promise<string> {
    const made = randomBytes(32).toString('hex');
    const options = { condition: 'NX', GET: true } as const;
    const key = (await this.#link.run((client) => client.set(SHARED_KEY, made, options))) ?? made;
    this.#retention.expect(key);
    return key;
  }

  read(id: string): Promise<{ readonly stored: Stored | null; readonly now: number }> {
    return read(this.#link, id);
  }

  look(id: string): Promise<ReadRecord> {
    return this.#cache.look(id);
  }

  async write(
    id: string,
    sandbox: Sandbox | null,
    expected: string | null,
    options: WriteOptions = {},
  ): Promise<boolean> {
    const attention = sandbox ? dueAt(sandbox) : Number.POSITIVE_INFINITY;
    const score = Number.isFinite(attention) ? String(attention) : '+inf';
    const record = sandbox ? JSON.stringify(sandbox) : '';
    const version = randomUUID();
    const fields = [...fieldsOf(sandbox), ...optionsOf(sandbox, options)];
    const values = [id, expected ?? '', version, score, record, ...fields];
    try {
      const written = await this.#link.write((client) => client.writeRecord(KEYS.record(id), values));
      if (written === '' || written === version) return written !== '';
      throw reachedOf(written, sandbox?.owner ?? '', options) ?? this.#link.distrust();
    } finally {
      // A change counts at once on this gateway. Even a write that failed may have changed the record.
      this.#cache.forget(id);
      if (sandbox) this.#cache.forgetPort(sandbox.port);
    }
  }

  isDaemon(ip: string | null, port: number): Promise<boolean> {
    return this.#cache.isDaemon(ip, port);
  }

  async page({ order, after, limit, owner }: PageQuery): Promise<RecordPage> {
    const [nearest, farthest] = order === 'asc' ? ['-inf', '+inf'] : ['+inf', '-inf'];
    const start = [after ? String(after.startedAt) : nearest, after?.id ?? ''];
    const values = [String(limit), ...start, farthest, order === 'asc' ? '' : 'REV'];
    const found = await this.#link.run((client) => client.pageOfRecords(KEYS.ofOwner(owner), values));
    const [id, startedAt] = found.at(-1) ?? [];
    return {
      sandboxes: found.flatMap(([, , record]) => readable(record)),
      // A record that is empty was removed meanwhile.
      malformed: found.flatMap(([each = '', , record]) =>
        record && readable(record).length === 0 ? [each] : [],
      ),
      next: id !== undefined && found.length === limit ? { id, startedAt: Number(startedAt) } : null,
    };
  }

  async countPhases(): Promise<Readonly<Record<Phase, number>>> {
    const counts = await this.#link.run((client) =>
      Promise.all(PHASES.map((phase) => client.sCard(KEYS.phase(phase)))),
    );
    return Object.fromEntries(PHASES.map((phase, index) => [phase, counts[index]])) as Record<Phase, number>;
  }

  async due(limit: number, offset: number): Promise<Due> {
    const { now, next, found } = await this.#link.run((client) =>
      client.dueRecords(KEYS.attention, [String(limit), String(offset)]),
    );
    const nextInMs = next === '' ? Number.POSITIVE_INFINITY : Number(next) - now;
    if (Number.isNaN(nextInMs)) this.#link.distrust();
    const sandboxes = found.map(([id = '', host = '', owner, failures]) => {
      return { id, host, owner: owner || null, failures: Number(failures) };
    });
    return { sandboxes, nextInMs };
  }

  endless(limit: number): Promise<readonly string[]> {
    const range = { BY: 'SCORE', LIMIT: { offset: 0, count: limit } } as const;
    return this.#link.run((client) => client.zRange(KEYS.attention, '+inf', '+inf', range));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const each of [this.#retention, this.#cache, this.#link]) each[Symbol.dispose]();
  }
}

async function read(
  link: RedisLink,
  id: string,
): Promise<{ readonly stored: Stored | null; readonly now: number }> {
  const [key, version, record, seconds, micros] = await link.run((client) =>
    client.readRecord(KEYS.record(id), []),
  );
  const now = Number(seconds) * 1000 + Math.floor(Number(micros) / 1000);
  if (key !== KEYS.record(id) || Number.isNaN(now)) link.distrust();
  return { stored: version && record ? { sandbox: readRecord(record), version } : null, now };
}

async function isDaemon(link: RedisLink, ip: string | null, port: number): Promise<boolean> {
  const endpoints = ip === null ? [`any:${port}`] : [`${ip}:${port}`, `*:${port}`];
  const [counts, closedUntil] = await link.run((client) =>
    Promise.all([client.hmGet(KEYS.daemons, endpoints), client.zmScore(KEYS.leftDaemons, endpoints)]),
  );
  return counts.some((count) => count !== null) || closedUntil.some((time) => Number(time) >= Date.now());
}

function readable(record = ''): readonly Sandbox[] {
  const sandbox = readRecord(record);
  return sandbox ? [sandbox] : [];
}

/** Returns the error for a quota that a write has reached, or null if the reply names none. */
function reachedOf(reply: string, owner: string, { quota = {} }: WriteOptions): QuotaReached | null {
  const [name, waitMs] = reply.split(' ');
  if (name === 'sandboxes') return QuotaReached.sandboxes(owner, quota.sandboxes ?? 0);
  return name === 'creates' ? QuotaReached.creates(owner, quota.creates ?? 0, Number(waitMs)) : null;
}
