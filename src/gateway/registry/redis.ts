import { randomBytes, randomUUID } from 'node:crypto';
import { createClient, defineScript } from '@redis/client';
import type { Logger } from 'pino';
import { EnvdError, messageOf } from '../../base/errors.ts';
import { dueAt, hostOf, type Sandbox } from '../leases/sandbox.ts';
import { CommandLimit } from './command-limit.ts';
import type { Due, OnChange, Store, Stored } from './registry.ts';

/** One hash tag for all keys: a script of a cluster may only use keys of one slot. */
const PREFIX = '{envd-gateway}';
const ATTENTION = `${PREFIX}:attention`;
/** How many daemons there are, by endpoint: `IP:PORT`, `*:PORT` at host names, `any:PORT` in all. */
const DAEMONS = `${PREFIX}:daemons`;
const KEY = `${PREFIX}:key`;
/** How many records of a list are read at a time, so that other commands come between. */
const PAGE = 500;
const CONNECT_TIMEOUT_MS = 5000;
/** A connection on which nothing is sent or received for so long is made anew; the scheduler asks more often. */
const SILENT_MS = 5000;
/** The ids of changed records are published here. */
const CHANGES = `${PREFIX}:changes`;

/** Returns version, record, and Redis' clock, which all gateways share. */
const READ = `
  local found = redis.call('HMGET', KEYS[1], 'version', 'record')
  local time = redis.call('TIME')
  return { found[1], found[2], time[1], time[2] }`;

/**
 * Arguments: id, expected version or '', new version, when it is due, record or '' to remove it, endpoint and port of the
 * daemon, host, number of failures, where to publish the id. Returns 1 if written.
 */
const WRITE = `
  if (redis.call('HGET', KEYS[1], 'version') or '') ~= ARGV[2] then return 0 end
  local function count(endpoint, port, by)
    for _, each in ipairs({ endpoint, 'any:' .. port }) do
      if redis.call('HINCRBY', KEYS[3], each, by) <= 0 then redis.call('HDEL', KEYS[3], each) end
    end
  end
  local before = redis.call('HMGET', KEYS[1], 'endpoint', 'port')
  if before[1] and before[2] then count(before[1], before[2], -1) end
  if ARGV[5] == '' then
    redis.call('DEL', KEYS[1])
    redis.call('ZREM', KEYS[2], ARGV[1])
  else
    redis.call('HSET', KEYS[1], 'version', ARGV[3], 'record', ARGV[5], 'endpoint', ARGV[6], 'port', ARGV[7],
      'host', ARGV[8], 'failures', ARGV[9])
    count(ARGV[6], ARGV[7], 1)
    redis.call('ZADD', KEYS[2], ARGV[4], ARGV[1])
  end
  redis.call('PUBLISH', ARGV[10], ARGV[1])
  return 1`;

/**
 * Arguments: how many, behind how many, prefix of records. Returns the time, when the next one is due or '', and of each id,
 * host, number of failures.
 */
const DUE = `
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local ids = redis.call('ZRANGE', KEYS[1], '-inf', now, 'BYSCORE', 'LIMIT', ARGV[2], ARGV[1])
  local after = redis.call('ZRANGE', KEYS[1], '(' .. now, '(+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
  local found = {}
  for _, id in ipairs(ids) do
    local lane = redis.call('HMGET', ARGV[3] .. id, 'host', 'failures')
    for _, value in ipairs({ id, lane[1] or '', lane[2] or '0' }) do found[#found + 1] = value end
  end
  return { string.format('%d', now), after[2] or '', found }`;

const scripts = {
  readRecord: defineScript({
    SCRIPT: READ,
    NUMBER_OF_KEYS: 1,
    IS_READ_ONLY: true,
    parseCommand: (parser, key: string) => parser.pushKey(key),
    transformReply: (reply: unknown) => reply as (string | null)[],
  }),
  writeRecord: defineScript({
    SCRIPT: WRITE,
    NUMBER_OF_KEYS: 3,
    IS_READ_ONLY: false,
    parseCommand(parser, key: string, rest: readonly string[]) {
      parser.pushKey(key);
      parser.pushKey(ATTENTION);
      parser.pushKey(DAEMONS);
      parser.push(...rest);
    },
    transformReply: (reply: unknown) => reply === 1,
  }),
  dueRecords: defineScript({
    SCRIPT: DUE,
    NUMBER_OF_KEYS: 1,
    IS_READ_ONLY: true,
    parseCommand(parser, limit: string, offset: string) {
      parser.pushKey(ATTENTION);
      parser.push(limit, offset, keyOf(''));
    },
    transformReply(reply: unknown) {
      const [now, next, found] = reply as readonly [string, string, readonly string[]];
      return { now, next, found };
    },
  }),
};

function makeClient(url: string, silentMs?: number) {
  return createClient({
    url,
    scripts,
    // A command fails at once while the server is away, instead of waiting for it.
    disableOfflineQueue: true,
    socket: {
      connectTimeout: CONNECT_TIMEOUT_MS,
      ...(silentMs !== undefined && { socketTimeout: silentMs }),
      reconnectStrategy: (retries) => Math.min(50 * 2 ** retries, 2000),
    },
  });
}

type Client = ReturnType<typeof makeClient>;

/** A Redis server that several gateways share. Each write is one script, which Redis runs atomically. */
export class RedisStore implements Store {
  readonly exclusive = false;
  readonly #client: Client;
  readonly #subscriber: Client;
  readonly #limit = new CommandLimit();

  private constructor(client: Client, subscriber: Client) {
    this.#client = client;
    this.#subscriber = subscriber;
  }

  /** Throws `unavailable` when the server cannot be reached. Later the client reconnects by itself. */
  static async open(url: string, logger: Logger): Promise<RedisStore> {
    // Nothing is sent on the second one while nothing changes.
    const [client, subscriber] = [makeClient(url, SILENT_MS), makeClient(url)];
    try {
      await Promise.all([client, subscriber].map((each) => connect(each, logger)));
      return new RedisStore(client, subscriber);
    } catch (error) {
      for (const each of [client, subscriber]) each.destroy();
      throw new EnvdError('unavailable', `cannot reach the registry: ${messageOf(error)}`, { cause: error });
    }
  }

  async watch(onChange: OnChange): Promise<void> {
    await this.#limit.run(() => this.#subscriber.subscribe(CHANGES, onChange));
    // Connected again: what was published meanwhile is lost.
    this.#subscriber.on('ready', () => onChange(null));
  }

  async key(): Promise<string> {
    const made = randomBytes(32).toString('hex');
    const earlier = await this.#limit.run(() => this.#client.set(KEY, made, { condition: 'NX', GET: true }));
    return earlier ?? made;
  }

  async read(id: string): Promise<{ readonly stored: Stored | null; readonly now: number }> {
    const [version, record, seconds, micros] = await this.#limit.run(() =>
      this.#client.readRecord(keyOf(id)),
    );
    const now = Number(seconds) * 1000 + Math.floor(Number(micros) / 1000);
    return { stored: version && record ? { sandbox: parse(record), version } : null, now };
  }

  write(id: string, sandbox: Sandbox | null, expected: string | null): Promise<boolean> {
    const attention = sandbox ? dueAt(sandbox) : Number.POSITIVE_INFINITY;
    const score = Number.isFinite(attention) ? String(attention) : '+inf';
    const record = sandbox ? JSON.stringify(sandbox) : '';
    const values = [id, expected ?? '', randomUUID(), score, record, ...fieldsOf(sandbox), CHANGES];
    return this.#limit.run(() => this.#client.writeRecord(keyOf(id), values));
  }

  async isDaemon(ip: string | null, port: number): Promise<boolean> {
    const endpoints = ip === null ? [`any:${port}`] : [`${ip}:${port}`, `*:${port}`];
    const counts = await this.#limit.run(() => this.#client.hmGet(DAEMONS, endpoints));
    return counts.some((count) => count !== null);
  }

  async list(): Promise<readonly Sandbox[]> {
    const ids = await this.#limit.run(() => this.#client.zRange(ATTENTION, 0, -1));
    const sandboxes: Sandbox[] = [];
    for (let first = 0; first < ids.length; first += PAGE) {
      const records = await this.#limit.run(() =>
        Promise.all(ids.slice(first, first + PAGE).map((id) => this.#client.hGet(keyOf(id), 'record'))),
      );
      for (const record of records) if (record) sandboxes.push(parse(record));
    }
    return sandboxes;
  }

  async due(limit: number, offset: number): Promise<Due> {
    const { now, next, found } = await this.#limit.run(() =>
      this.#client.dueRecords(String(limit), String(offset)),
    );
    const sandboxes = Array.from({ length: found.length / 3 }, (_, index) => {
      const [id = '', host = '', failures] = found.slice(3 * index, 3 * index + 3);
      return { id, host, failures: Number(failures) };
    });
    return { sandboxes, nextInMs: next === '' ? Number.POSITIVE_INFINITY : Number(next) - Number(now) };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const each of [this.#client, this.#subscriber]) each.destroy();
  }
}

/** Later the client reconnects by itself. */
async function connect(client: Client, logger: Logger): Promise<void> {
  let opened = false;
  const failed = new Promise<never>((_resolve, reject) => {
    client.on('error', (error) => {
      if (opened) logger.warn({ reason: messageOf(error) }, 'the registry cannot be reached');
      else reject(error);
    });
  });
  await Promise.race([client.connect(), failed]);
  opened = true;
}

const keyOf = (id: string) => `${PREFIX}:sandbox:${id}`;

/** The fields beside a record that scripts use. */
function fieldsOf(sandbox: Sandbox | null): readonly string[] {
  if (!sandbox) return ['', '', '', ''];
  const { ip, port, failures } = sandbox;
  return [`${ip ?? '*'}:${port}`, String(port), hostOf(sandbox), String(failures)];
}

function parse(record: string): Sandbox {
  return JSON.parse(record) as Sandbox;
}
