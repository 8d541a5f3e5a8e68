import { defineScript } from '@redis/client';
import { CLOSED_MS, countedFailures, DAEMON_PORT, hostOf, PHASES, type Sandbox } from '../leases/sandbox.ts';
import { commonUsageKeyOf, MOST_USAGES, usageKeyOf } from '../leases/usage.ts';
import { MOST_EVENTS, type WriteOptions } from './shared-state.ts';

/** All keys have this hash tag, so that they are in one slot of a cluster. */
export const PREFIX = '{envd-gateway}';
const RECORD = `${PREFIX}:sandbox:`;
/** A sorted set of ids; the score is the time at which a gateway has to act, in Unix ms. */
const ATTENTION = `${PREFIX}:attention`;
/** A hash with the numbers of daemons by endpoint: `IP:PORT`, `*:PORT` for those at host names, and `any:PORT` for all. */
const DAEMONS = `${PREFIX}:daemons`;
/** A sorted set of the endpoints of daemons that have no record any more; the score is the time until which they stay closed. */
const LEFT_DAEMONS = `${PREFIX}:left-daemons`;
/**
 * Sorted sets of ids; the score is the start of the sandbox. This one has all ids. With a colon and an owner, it has those of
 * the owner.
 */
const STARTED = `${PREFIX}:started`;
/** A set of ids for each phase. */
const PHASE = `${PREFIX}:phase:`;
/** A stream of events, which are entries `0-1`, `0-2` and so on. */
const EVENTS = `${PREFIX}:events`;
/** A hash that says which gateway delivers events, until when, and which event is the last that is delivered. */
const DELIVERY = `${PREFIX}:delivery`;
/**
 * A hash from keys of usage to three numbers: the sandboxes that run, the time for which sandboxes have run (ms), and the time
 * up to which that is counted (Unix ms).
 */
const USAGE = `${PREFIX}:usage`;
/** A set of hosts. */
const DRAINED = `${PREFIX}:drained`;
/** For each owner, the time at which the bucket of creations is empty (Unix ms). The keys expire then. */
const CREATES = `${PREFIX}:creates:`;
/** The messages on this channel are ids of changed records, and `daemon:PORT` when a daemon was added or removed. */
export const CHANGES = `${PREFIX}:changes`;
/** A message on this channel, or a write to this key, marks a position. A replica that has it has all earlier writes too. */
export const BARRIER = `${PREFIX}:barrier`;
/** This key holds the random secret of the registry. */
export const SHARED_KEY = `${PREFIX}:key`;

/** Returns the key, the version, the record, and the clock of Redis, which all gateways share. */
const READ = `
  local found = redis.call('HMGET', KEYS[1], 'version', 'record')
  local time = redis.call('TIME')
  return { KEYS[1], found[1], found[2], time[1], time[2] }`;

/**
 * Defines a function that puts an id into the lists of sandboxes, whatever they had before. With an empty phase, it removes
 * the id.
 */
const LIST = `
  local function list(id, phase, started, owner, earlier_owner)
    for _, each in ipairs({ ${PHASES.map((phase) => `'${phase}'`).join(', ')} }) do
      redis.call(each == phase and 'SADD' or 'SREM', '${PHASE}' .. each, id)
    end
    if earlier_owner and earlier_owner ~= owner then redis.call('ZREM', '${STARTED}:' .. earlier_owner, id) end
    if phase == '' then
      redis.call('ZREM', '${STARTED}', id)
    else
      redis.call('ZADD', '${STARTED}', started, id)
      if owner ~= '' then redis.call('ZADD', '${STARTED}:' .. owner, started, id) end
    end
  end`;

/** Defines a function that counts the time of sandboxes, before `by` is added to the number of those that run. */
const METER = `
  local function meter(key, by, now)
    local found = redis.call('HGET', '${USAGE}', key) or '0 0 ' .. now
    local running, sum, at = string.match(found, '(%S+) (%S+) (%S+)')
    local later = math.max(now, tonumber(at))
    local values = string.format('%d %d %d', running + by, sum + running * (later - at), later)
    redis.call('HSET', '${USAGE}', key, values)
  end`;

/** Defines a function that returns what keeps an owner from a creation, or an empty text after the creation is counted. */
const ADMIT = `
  local function admit(owner, sandboxes, creates, now)
    if sandboxes ~= '' and redis.call('ZCARD', '${STARTED}:' .. owner) >= tonumber(sandboxes) then
      return 'sandboxes'
    end
    if creates == '' then return '' end
    local key = '${CREATES}' .. owner
    local empty_at = math.max(tonumber(redis.call('GET', key) or '0'), now) + 60000 / creates
    if empty_at - now > 60000.001 then return string.format('creates %d', math.ceil(empty_at - now - 60000)) end
    redis.call('SET', key, string.format('%.3f', empty_at), 'PX', math.ceil(empty_at - now))
    return ''
  end`;

/**
 * Writes or removes a record. The arguments are the id, the expected version or '', the new version, the time at which it is
 * due, the record or '' to remove it, the endpoint and the port of the daemon, the host, the number of failures, the phase,
 * the start, the owner, the key of its usage or '', the key if there are too many, the quotas of sandboxes and of creations
 * or '', and the events. Returns the new version if the record was written, '' if another version is there, and otherwise the
 * quota that is reached.
 */
const WRITE = `${LIST}${METER}${ADMIT}
  if (redis.call('HGET', KEYS[1], 'version') or '') ~= ARGV[2] then return '' end
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local reached = admit(ARGV[12], ARGV[15], ARGV[16], now)
  if reached ~= '' then return reached end
  local function count(endpoint, port, by)
    local closed_until = string.format('%d', now + ${CLOSED_MS})
    if by < 0 then redis.call('ZREMRANGEBYSCORE', '${LEFT_DAEMONS}', '-inf', now) end
    for _, each in ipairs({ endpoint, 'any:' .. port }) do
      if redis.call('HINCRBY', '${DAEMONS}', each, by) <= 0 then redis.call('HDEL', '${DAEMONS}', each) end
      if by < 0 and port ~= '${DAEMON_PORT}' then redis.call('ZADD', '${LEFT_DAEMONS}', closed_until, each) end
    end
    redis.call('PUBLISH', '${CHANGES}', 'daemon:' .. port)
  end
  local before = redis.call('HMGET', KEYS[1], 'endpoint', 'port', 'owner', 'usage')
  local moved = before[1] ~= ARGV[6]
  if moved and before[1] and before[2] then count(before[1], before[2], -1) end
  list(ARGV[1], ARGV[10], ARGV[11], ARGV[12], before[3])
  local usage = ARGV[13]
  if usage ~= '' and redis.call('HEXISTS', '${USAGE}', usage) == 0
    and redis.call('HLEN', '${USAGE}') >= ${MOST_USAGES} then usage = ARGV[14] end
  local used = before[4] or ''
  if used ~= usage and used ~= '' then meter(used, -1, now) end
  if used ~= usage and usage ~= '' then meter(usage, 1, now) end
  for index = 17, #ARGV do
    redis.call('XADD', '${EVENTS}', 'MAXLEN', '=', ${MOST_EVENTS}, '0-*', 'at', string.format('%d', now), 'event', ARGV[index])
  end
  if ARGV[5] == '' then
    redis.call('DEL', KEYS[1])
    redis.call('ZREM', '${ATTENTION}', ARGV[1])
  else
    redis.call('HSET', KEYS[1], 'version', ARGV[3], 'record', ARGV[5], 'endpoint', ARGV[6], 'port', ARGV[7],
      'host', ARGV[8], 'failures', ARGV[9], 'owner', ARGV[12], 'usage', usage)
    if moved then count(ARGV[6], ARGV[7], 1) end
    local due = ARGV[4] == '+inf' and ARGV[4] or string.format('%d', math.max(tonumber(ARGV[4]), now))
    redis.call('ZADD', '${ATTENTION}', due, ARGV[1])
  end
  redis.call('PUBLISH', '${CHANGES}', ARGV[1])
  return ARGV[3]`;

/**
 * Reads sandboxes that are due. The arguments are the maximum number, and the number to skip. Returns the time, the time at
 * which the next one is due or '', and for each sandbox its id, its host, its owner or '', and its number of failures.
 */
const DUE = `
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local ids = redis.call('ZRANGE', KEYS[1], '-inf', now, 'BYSCORE', 'LIMIT', ARGV[2], ARGV[1])
  local after = redis.call('ZRANGE', KEYS[1], '(' .. now, '(+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
  local found = {}
  for _, id in ipairs(ids) do
    local lane = redis.call('HMGET', '${RECORD}' .. id, 'host', 'owner', 'failures')
    for _, value in ipairs({ id, lane[1] or '', lane[2] or '', lane[3] or '0' }) do found[#found + 1] = value end
  end
  return { string.format('%d', now), after[2] or '', found }`;

/**
 * Reads a page of a list. The arguments are the maximum number, the start and the id behind which the page begins, the last
 * start, and REV for the opposite order. Returns for each sandbox its id, its start, and its record or ''.
 */
const PAGE = `
  local function range(first, last, ...)
    local values = { KEYS[1], first, last, 'BYSCORE' }
    for _, each in ipairs({ ARGV[5], ... }) do
      if each ~= '' then values[#values + 1] = each end
    end
    return redis.call('ZRANGE', unpack(values))
  end
  local function is_up_to(a, b)
    for index = 1, #a do
      local one, other = a:byte(index), b:byte(index)
      if one ~= other then return other ~= nil and one < other end
    end
    return true
  end
  local skipped = 0
  for _, id in ipairs(range(ARGV[2], ARGV[2])) do
    local passed = ARGV[5] == '' and is_up_to(id, ARGV[3]) or ARGV[5] ~= '' and is_up_to(ARGV[3], id)
    if passed then skipped = skipped + 1 end
  end
  local page = range(ARGV[2], ARGV[4], 'LIMIT', skipped, ARGV[1], 'WITHSCORES')
  local found = {}
  for index = 1, #page, 2 do
    local record = redis.call('HGET', '${RECORD}' .. page[index], 'record') or ''
    for _, value in ipairs({ page[index], page[index + 1], record }) do found[#found + 1] = value end
  end
  return found`;

/** Puts records into the lists that a version without lists has written. The arguments are their ids. */
const ENTER = `${LIST}
  for _, id in ipairs(ARGV) do
    local record = redis.call('HGET', '${RECORD}' .. id, 'record')
    if record then
      local sandbox = cjson.decode(record)
      local owner = type(sandbox.owner) == 'string' and sandbox.owner or ''
      list(id, sandbox.phase, string.format('%d', sandbox.startedAt), owner, false)
      redis.call('HSET', '${RECORD}' .. id, 'owner', owner)
    end
  end
  return 1`;

/**
 * Claims the delivery of events. The arguments are the gateway, the time for which it delivers in ms, and the last event that
 * is delivered or ''. Returns that event, or '' if another gateway delivers.
 */
const DELIVER = `
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local found = redis.call('HMGET', KEYS[1], 'owner', 'until', 'delivered')
  if found[1] and found[1] ~= ARGV[1] and tonumber(found[2]) > now then return '' end
  local delivered = ARGV[3] ~= '' and ARGV[3] or found[3]
  if not delivered then
    local last = redis.call('XREVRANGE', '${EVENTS}', '+', '-', 'COUNT', 1)[1]
    delivered = last and string.match(last[1], '%d+$') or '0'
  end
  redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'until', string.format('%d', now + ARGV[2]), 'delivered', delivered)
  return delivered`;

/** Returns the time, and the usages by key. */
const READ_USAGE = `
  local time = redis.call('TIME')
  return { string.format('%d', time[1] * 1000 + math.floor(time[2] / 1000)), redis.call('HGETALL', KEYS[1]) }`;

/** Defines a script that has one key, and arguments that are passed on unchanged. */
function script<T>(SCRIPT: string, readOnly: boolean, transformReply: (reply: unknown) => T) {
  return defineScript({
    SCRIPT,
    NUMBER_OF_KEYS: 1,
    IS_READ_ONLY: readOnly,
    transformReply,
    parseCommand(parser, key: string, values: readonly string[]) {
      parser.pushKey(key);
      parser.push(...values);
    },
  });
}

/** The scripts, as commands of the client. */
export const SCRIPTS = {
  readRecord: script(READ, true, (reply) => reply as readonly (string | null)[]),
  writeRecord: script(WRITE, false, (reply) => reply as string),
  dueRecords: script(DUE, true, (reply) => {
    const [now, next, found] = reply as readonly [string, string, readonly string[]];
    return { now: Number(now), next, found: inRows(found, 4) };
  }),
  pageOfRecords: script(PAGE, true, (reply) => inRows(reply as readonly string[], 3)),
  enterRecords: script(ENTER, false, () => {}),
  deliverEvents: script(DELIVER, false, (reply) => reply as string),
  readUsage: script(READ_USAGE, true, (reply) => {
    const [now, pairs] = reply as readonly [string, readonly string[]];
    return { now: Number(now), found: inRows(pairs, 2) };
  }),
};

/** The names of the keys in Redis. */
export const KEYS = {
  attention: ATTENTION,
  daemons: DAEMONS,
  leftDaemons: LEFT_DAEMONS,
  started: STARTED,
  events: EVENTS,
  delivery: DELIVERY,
  usage: USAGE,
  drained: DRAINED,
  record: (id: string) => RECORD + id,
  ofOwner: (owner: string | null) => (owner === null ? STARTED : `${STARTED}:${owner}`),
  phase: (phase: string) => PHASE + phase,
} as const;

/** Returns the arguments of a write from the endpoint on. They are empty if the record is removed. */
export function fieldsOf(sandbox: Sandbox | null): readonly string[] {
  if (!sandbox) return ['', '', '', '', '', '', ''];
  const { ip, port, phase, startedAt, owner } = sandbox;
  const failures = countedFailures(sandbox);
  const endpoint = `${ip ?? '*'}:${port}`;
  return [endpoint, String(port), hostOf(sandbox), String(failures), phase, String(startedAt), owner ?? ''];
}

/** Returns the arguments of a write that follow those. */
export function optionsOf(
  sandbox: Sandbox | null,
  { events = [], quota = {} }: WriteOptions,
): readonly string[] {
  return [
    ...[usageKeyOf(sandbox), commonUsageKeyOf(sandbox)],
    ...[String(quota.sandboxes ?? ''), String(quota.creates ?? '')],
    ...events.map((event) => JSON.stringify(event)),
  ];
}

function inRows(values: readonly string[], length: number): readonly (readonly string[])[] {
  return Array.from({ length: values.length / length }, (_, row) =>
    values.slice(row * length, (row + 1) * length),
  );
}
