import { join } from 'node:path';
import { createClient } from '@redis/client';
import pino from 'pino';
import { afterAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import { endSandbox, momentOf } from '../../src/gateway/leases/ended.ts';
import { beginResume, endResume, failResume } from '../../src/gateway/leases/resumption.ts';
import {
  CLOSED_MS,
  dueAt,
  isReachable,
  outcomeOf,
  type Registration,
  type Sandbox,
} from '../../src/gateway/leases/sandbox.ts';
import {
  acquire,
  commitExpiry,
  complete,
  extend,
  fail,
  failRemoval,
  LEASE_MS,
  postpone,
  register,
  removeSandbox,
  resume,
  setTimeToLive,
} from '../../src/gateway/leases/transitions.ts';
import { EmbeddedStore } from '../../src/gateway/registry/embedded.ts';
import { RedisStore } from '../../src/gateway/registry/redis.ts';
import type { Order, RecordPage, Store } from '../../src/gateway/registry/registry.ts';
import { Registry } from '../../src/gateway/registry/registry.ts';
import { scratch } from '../support/machine/scratch.ts';
import { type RedisServer, startRedis } from '../support/servers/redis-server.ts';
import { startRelay } from '../support/servers/relay.ts';

const registration = (id: string): Registration => ({
  ...{
    id,
    address: '127.0.0.1',
    port: 1,
    accessToken: null,
    metadata: { 'a "key"': 'ä\n' },
    envdVersion: '0.6.4',
  },
  onExpiry: 'pause',
  ip: null,
  owner: null,
});

const idsOf = async (due: ReturnType<Store['due']>) => (await due).sandboxes.map(({ id }) => id);

const put = (registry: Registry, id: string, seconds: number) =>
  registry.put(id, (before, now) => register(before, registration(id), seconds, now));

let redis: RedisServer | null = null;

afterAll(() => redis?.[Symbol.asyncDispose]());

let database = 0;
const at = (url: string) => ({ locate: async () => url, replicas: 0, isCluster: false });
const openEmbedded = (): Promise<Store> => EmbeddedStore.open(join(scratch(), 'registry.db'));
async function redisServer(): Promise<RedisServer> {
  redis ??= await startRedis();
  return redis;
}
async function openRedis(): Promise<Store> {
  return RedisStore.open(at(`${(await redisServer()).url}/${database++}`), pino({ level: 'silent' }));
}
const kinds: readonly (readonly [string, () => Promise<Store>])[] = [
  ['embedded', openEmbedded],
  ['redis', openRedis],
];

describe.each(kinds)('the %s registry', (kind, open) => {
  test('keeps a record unchanged until it is removed', async () => {
    await using store = await open();
    const registry = new Registry(store);
    expect((await registry.find('one')).sandbox).toBeNull();
    const sandbox = await put(registry, 'one', 60);
    expect((await registry.find('one')).sandbox).toEqual(sandbox);
    expect(await Array.fromAsync(registry.list())).toEqual([sandbox]);
    expect(await registry.change('one', () => null)).toBeNull();
    expect((await registry.find('one')).sandbox).toBeNull();
    expect(await Array.fromAsync(registry.list())).toEqual([]);
    expect(await idsOf(registry.due(10, 0))).toEqual([]);
  });

  test('refuses a write that names an old version', async () => {
    await using store = await open();
    await put(new Registry(store), 'one', 60);
    const { stored } = await store.read('one');
    const { sandbox, version } = stored as { readonly sandbox: Sandbox; readonly version: string };
    expect(await store.write('one', sandbox, null)).toBe(false);
    expect(await store.write('one', sandbox, 'another')).toBe(false);
    expect(await store.write('one', sandbox, version)).toBe(true);
    expect(await store.write('one', null, version)).toBe(false);
    expect(await store.write('two', sandbox, version)).toBe(false);
    expect(await Array.fromAsync(registry(store).list())).toHaveLength(1);
  });

  test('knows a daemon for a day after its record is gone, unless no client can name its port', async () => {
    await using store = await open();
    const put = (id: string, ip: string | null, port: number) =>
      registry(store).put(id, (before, now) => register(before, { ...registration(id), ip, port }, 60, now));
    const known = (port: number) =>
      Promise.all(['10.0.0.1', '10.0.0.2', null].map((ip) => store.isDaemon(ip, port)));
    await put('one', '10.0.0.1', 5000);
    await put('two', '10.0.0.1', 49983);
    await put('three', null, 5001);
    expect(await known(5000)).toEqual([true, false, true]);
    // Its record names another endpoint, and then it is removed.
    await put('one', '10.0.0.2', 5002);
    for (const id of ['one', 'two', 'three']) await registry(store).change(id, () => null);
    expect(await known(5000)).toEqual([true, false, true]);
    expect(await known(5001)).toEqual([true, true, true]);
    expect(await known(5002)).toEqual([false, true, true]);
    expect(await known(49983)).toEqual([false, false, false]);
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + CLOSED_MS + 1000 });
    onTestFinished(() => void vi.useRealTimers());
    // Redis is asked again after a moment.
    await expect.poll(() => known(5000)).toEqual([false, false, false]);
  });

  test('tells one of many who remove a record at once that it has removed it', async () => {
    await using store = await open();
    await put(new Registry(store), 'one', 60);
    const told = await Promise.all(
      Array.from({ length: 8 }, () => registry(store).change('one', () => null)),
    );
    expect(told.filter((each) => each === null)).toHaveLength(1);
    expect(told.filter((each) => each === undefined)).toHaveLength(7);
  });

  test('makes all of many concurrent changes', async () => {
    await using store = await open();
    const registries = [new Registry(store), new Registry(store)];
    await put(new Registry(store), 'one', 60);
    const changes = Array.from({ length: 40 }, (_, index) =>
      registries[index % 2]?.change('one', (current) => ({ ...current, failures: current.failures + 1 })),
    );
    await Promise.all(changes);
    expect((await registry(store).find('one')).sandbox?.failures).toBe(40);
  });

  test('lists in pages by start, those of one owner too, while records come and go', async () => {
    await using store = await open();
    const start = (id: string, startedAt: number, owner: string | null = null) =>
      registry(store).put(id, (before, now) => ({
        ...register(before, { ...registration(id), owner }, 60, now),
        startedAt,
      }));
    for (const [index, id] of ['c', 'a', 'd', 'b', 'e'].entries())
      await start(id, 1000, index % 2 ? 'ada' : null);
    await start('first', 10, 'ada');
    await start('last', 2000, 'bob');
    const pages = async (
      limit: number,
      owner: string | null = null,
      between = async () => {},
      order: Order = 'asc',
    ) => {
      const seen: string[][] = [];
      for (let after: RecordPage['next'] = null; ; ) {
        const { sandboxes, next }: RecordPage = await store.page({ order, limit, after, owner });
        seen.push(sandboxes.map(({ id }) => id));
        if (!next) return seen;
        after = next;
        await between();
      }
    };
    expect(await pages(3)).toEqual([['first', 'a', 'b'], ['c', 'd', 'e'], ['last']]);
    expect((await pages(2, 'ada')).flat()).toEqual(['first', 'a', 'b']);
    expect(await pages(100, 'nobody')).toEqual([[]]);
    const back = [['last', 'e'], ['d', 'c'], ['b', 'a'], ['first']];
    expect(await pages(2, null, undefined, 'desc')).toEqual(back);
    // Behind one that has gone, and from the beginning of a millisecond.
    for (const [order, id, ids] of [
      ['asc', 'bb', ['c', 'd']],
      ['asc', '', ['a', 'b']],
      ['desc', 'bb', ['b', 'a']],
    ] as const) {
      const after = { startedAt: 1000, id };
      const { sandboxes } = await store.page({ order, limit: 2, after, owner: null });
      expect(sandboxes.map((each) => each.id)).toEqual(ids);
    }
    // The one behind which the next page begins goes, and another one starts anew.
    const changes = [() => registry(store).change('b', () => null), () => start('first', 3000, 'bob')];
    const seen = await pages(3, null, async () => void (await changes.shift()?.()));
    expect(seen.flat()).toEqual(['first', 'a', 'b', 'c', 'd', 'e', 'last', 'first']);
    expect((await pages(10, 'ada')).flat()).toEqual(['a']);
    expect((await pages(1, 'bob')).flat()).toEqual(['last', 'first']);
  });

  test('counts the sandboxes in each phase', async () => {
    await using store = await open();
    for (const id of ['one', 'two', 'three']) await put(registry(store), id, 0);
    await registry(store).change('one', (sandbox) => ({ ...sandbox, phase: 'paused' }));
    await registry(store).change('two', (sandbox, now) => acquire(sandbox, 'me', now));
    const none = {
      ...{ resuming: 0, removing: 0, creating: 0 },
      running: 0,
      expiring: 0,
      committed: 0,
      thawing: 0,
      paused: 0,
    };
    expect(await store.countPhases()).toEqual({ ...none, running: 1, expiring: 1, paused: 1 });
    await registry(store).change('one', () => null);
    await put(registry(store), 'two-again', 60);
    expect(await store.countPhases()).toEqual({ ...none, running: 2, expiring: 1 });
  });

  test('returns what is due, in the order in which it was known to be, and the time until the next', async () => {
    await using store = await open();
    for (const [id, seconds] of [
      ['late', -1],
      ['later', -5],
      ['soon', 30],
      ['far', 3600],
    ] as const) {
      await put(registry(store), id, seconds);
    }
    await registry(store).change('far', (sandbox) => ({ ...sandbox, phase: 'paused' }));
    const { sandboxes, nextInMs } = await store.due(10, 0);
    const ids = sandboxes.map(({ id }) => id);
    // Nobody comes before others by a time that was over when it was written.
    expect(ids).toEqual(['late', 'later']);
    expect(await idsOf(store.due(1, 0))).toEqual(['late']);
    expect(nextInMs).toBeGreaterThan(20_000);
    expect(nextInMs).toBeLessThanOrEqual(30_000);
    await registry(store).change('soon', () => null);
    expect((await store.due(10, 0)).nextInMs).toBe(Number.POSITIVE_INFINITY);
  });

  test('lets one of many gateways claim what is due', async () => {
    await using store = await open();
    await put(registry(store), 'one', 0);
    const owners = Array.from({ length: 10 }, (_, index) => `owner ${index}`);
    const claims = owners.map(async (owner) => {
      let taken = false;
      const claim = (sandbox: Sandbox, now: number) => {
        const next = acquire(sandbox, owner, now);
        taken = next !== sandbox;
        return next;
      };
      await registry(store).change('one', claim);
      return taken;
    });
    expect((await Promise.all(claims)).filter(Boolean)).toHaveLength(1);
    expect(await idsOf(store.due(10, 0))).toEqual([]);
  });

  test(`its claims are ${kind === 'redis' ? 'kept' : 'dropped'} when it is opened`, async () => {
    await using store = await open();
    await put(registry(store), 'one', 0);
    await registry(store).change('one', (sandbox, now) => acquire(sandbox, 'a gateway that was killed', now));
    await registry(store).dropClaims();
    expect(await idsOf(store.due(10, 0))).toEqual(kind === 'redis' ? [] : ['one']);
  });
});

test('records that a version without lists has written into Redis are listed when it is opened', async () => {
  const place = `${(await redisServer()).url}/${database++}`;
  const open = () => RedisStore.open(at(place), pino({ level: 'silent' }));
  const client = createClient({ url: place });
  await client.connect();
  {
    await using store = await open();
    for (let index = 0; index < 1100; index++) await put(registry(store), `s${index}`, 60);
    await client.del(['{envd-gateway}:started', '{envd-gateway}:phase:running']);
    expect(await Array.fromAsync(registry(store).list())).toEqual([]);
  }
  await using store = await open();
  expect(await Array.fromAsync(registry(store).list())).toHaveLength(1100);
  expect(await store.countPhases()).toMatchObject({ running: 1100, paused: 0 });
  client.destroy();
});

test("a garbled time in a reply of Redis is refused, and the next reply is another connection's", async () => {
  const { port } = await redisServer();
  await using relay = await startRelay(port);
  const place = `redis://127.0.0.1:${relay.port}/${database++}`;
  await using store = await RedisStore.open(at(place), pino({ level: 'silent' }));
  const { promise: isTold, resolve } = Promise.withResolvers<void>();
  await store.watch(() => resolve());
  await put(registry(store), 'one', 60);
  await isTold;
  // Of 48 bytes `*3 $13 NOW $13 NEXT *0` the first digit; and one of the last six digits, the microseconds, of some 400 bytes.
  const cases: readonly [ask: () => Promise<unknown>, at: number][] = [
    [() => store.due(10, 0), 9.5 / 48],
    [() => store.read('one'), 0.987],
  ];
  for (const [ask, at] of cases) {
    // So that Redis knows the script.
    await ask();
    using fault = relay.inject({ kind: 'garble', from: 'server', piece: 0, at });
    await expect(ask()).rejects.toMatchObject({ kind: 'unavailable' });
    expect(fault.hasFired).toBe(true);
    await vi.waitFor(ask, { timeout: 120_000 });
  }
});

const registry = (store: Store) => new Registry(store);

describe('the phases', () => {
  const now = 1_000_000;
  const running = register(null, registration('one'), 10, now);
  const expiring = acquire(running, 'me', now + 10_000) as Sandbox;
  const byHook = { byHook: true, keptMs: null };
  const observed = { freeze: null, collapse: null };
  const committed = commitExpiry(expiring, observed, now + 11_000);

  test('a sandbox is reachable while it is running, until its deadline', () => {
    expect(isReachable(running, now + 9999)).toBe(true);
    expect(isReachable(running, now + 10_000)).toBe(false);
    expect(isReachable(setTimeToLive(running, 60, now), now + 10_000)).toBe(true);
    for (const other of [expiring, committed]) expect(isReachable(other, now)).toBe(false);
  });

  test('a longer time to live is accepted until committed, and refused from then on', () => {
    expect(commitExpiry(extend(expiring, 60, now + 10_500), observed, now + 11_000).phase).toBe('thawing');
    expect(committed.phase).toBe('committed');
    expect(() => extend(committed, 60, now)).toThrow("sandbox 'one' has expired");
    expect(() => setTimeToLive(complete(committed, byHook, 0) as Sandbox, 60, now)).toThrow(
      "sandbox 'one' is paused",
    );
  });

  test('a claimed sandbox is claimed by another gateway when the lease is over, and not before', () => {
    expect(acquire(running, 'me', now)).toBe(running);
    expect(acquire(expiring, 'you', now + 10_000 + LEASE_MS - 1)).toBe(expiring);
    const taken = acquire(expiring, 'you', now + 10_000 + LEASE_MS);
    expect(taken).toMatchObject({ phase: 'expiring', expiries: 1, claim: { owner: 'you' } });
  });

  test('a machine that has ended by itself is removed when clients were told, unless there may be another one', () => {
    const ended = endSandbox(running, momentOf(running), 'why', now);
    expect(ended).toMatchObject({ phase: 'removing', endCause: 'ended', endDetail: 'why' });
    expect(dueAt(ended)).toBe(now + 60_000);
    expect(endSandbox(ended, momentOf(ended), 'again', now)).toBe(ended);
    for (const other of [committed, expiring])
      expect(endSandbox(other, momentOf(running), 'why', now)).toBe(other);
    const asked = removeSandbox(ended, now + 1);
    expect([dueAt(asked), asked.endCause]).toEqual([now + 1, 'ended']);
    expect(removeSandbox(asked, now + 2)).toBe(asked);
    // The attempts of a kill hook that fails stay apart.
    const failed = failRemoval(ended, now);
    expect(removeSandbox(failed, now)).toBe(failed);
  });

  test('a failed expiry is tried again after a longer delay each time', () => {
    const thawing = fail(committed, now + 12_000);
    expect(thawing).toMatchObject({ phase: 'thawing', failures: 1, retryAt: now + 13_000 });
    const again = resume(thawing);
    expect(acquire(again, 'me', now + 12_999)).toBe(again);
    expect(acquire(again, 'me', now + 13_000)).toMatchObject({ phase: 'expiring', expiries: 2 });
    const delays: number[] = [];
    for (let one: Sandbox = { ...thawing, deadline: now + 1000 }; delays.length < 10; ) {
      one = postpone(one, now);
      delays.push(one.retryAt - now);
    }
    expect(delays.slice(0, 2)).toEqual([2000, 4000]);
    expect(delays.slice(-3)).toEqual([256_000, 300_000, 300_000]);
  });

  test('a removal waits for the hook that runs, whatever becomes of it', () => {
    const doomed = removeSandbox(committed, now);
    expect(doomed).toMatchObject({ phase: 'committed', isDoomed: true, claim: { owner: 'me' } });
    expect(removeSandbox(doomed, now)).toBe(doomed);
    expect(complete(doomed, byHook, now)).toMatchObject({ phase: 'removing', claim: null, expiries: 2 });
    expect(fail(doomed, now)).toMatchObject({ phase: 'removing', claim: null, expiries: 2 });
    const paused = complete(committed, byHook, now) as Sandbox;
    const resuming = removeSandbox(beginResume(paused, 'me', now), now);
    expect(resuming).toMatchObject({ phase: 'resuming', isDoomed: true, expiries: 2 });
    expect(endResume(resuming, 60, now).phase).toBe('removing');
    expect(failResume(resuming, null, now)).toMatchObject({ phase: 'removing', claim: null, expiries: 3 });
    for (const sandbox of [running, expiring, paused])
      expect(removeSandbox(sandbox, now).phase).toBe('removing');
    expect(() => register(doomed, registration('one'), 1, now)).toThrow('cannot be registered in its phase');
  });

  test('a resume is tried again after a longer delay each time, and not before', () => {
    const paused = complete(committed, byHook, now) as Sandbox;
    const failed = failResume(beginResume(paused, 'me', now), null, now);
    expect(failed).toMatchObject({ phase: 'paused', claim: null, failures: 1, retryAt: now + 1000 });
    expect(beginResume(failed, 'me', now + 999)).toBe(failed);
    const again = beginResume(failed, 'me', now + 1000);
    expect(failResume(again, null, now).retryAt).toBe(now + 2000);
    const thawing = endResume(again, 60, now);
    expect(thawing).toMatchObject({ phase: 'thawing', deadline: now + 60_000, failures: 0 });
    expect(isReachable(resume(thawing), now)).toBe(true);
  });

  test('a paused sandbox is forgotten when its time is up, unless it is kept for ever', () => {
    expect(dueAt(complete(committed, byHook, now) as Sandbox)).toBe(Number.POSITIVE_INFINITY);
    const paused = complete(committed, { byHook: true, keptMs: 5000 }, now) as Sandbox;
    expect(dueAt(paused)).toBe(now + 5000);
    expect(acquire(paused, 'me', now + 4999)).toBe(paused);
    expect(acquire(paused, 'me', now + 5000)).toBeNull();
    // One that somebody wants is kept anew.
    const failed = failResume(beginResume(paused, 'me', now + 4000), 5000, now + 4500);
    expect(dueAt(failed)).toBe(now + 9500);
    const resumed = resume(endResume(beginResume(paused, 'me', now), 60, now));
    expect(dueAt(resumed)).toBe(now + 60_000);
    expect(resumed).not.toHaveProperty('forgetAt');
  });

  test('a resumed sandbox that cannot be thawed is tried until its deadline, then paused again', () => {
    const paused = complete(committed, byHook, now) as Sandbox;
    const thawing = endResume(beginResume(paused, 'me', now), 60, now);
    expect(postpone(thawing, now + 59_999)).toMatchObject({ phase: 'thawing', failures: 1, claim: null });
    const given = postpone(thawing, now + 60_000);
    // So does any other, to what is to become of it.
    const other = postpone(fail(committed, now + 12_000), now + 13_000);
    expect(other).toMatchObject({ phase: 'expiring', claim: null, retryAt: now + 15_000 });
    expect(other).not.toHaveProperty('pausedFrom');
    // Its guest is frozen once more: the answer to a thaw may have been lost.
    expect(given).toMatchObject({ phase: 'expiring', claim: null, expiries: thawing.expiries + 1 });
    expect(outcomeOf({ ...given, onExpiry: 'remove' })).toBe('pause');
    const frozen = commitExpiry(given, observed, now + 60_000);
    // The hook fails, too: both are tried in turns.
    const failed = fail(frozen, now + 60_000);
    expect(failed).toMatchObject({ phase: 'thawing', failures: 2 });
    expect(postpone(failed, now + 70_000)).toMatchObject({ phase: 'expiring', failures: 3 });
    const again = complete(frozen, byHook, now + 60_000);
    expect(again).toMatchObject({ phase: 'paused', failures: 0 });
    for (const member of ['isResumed', 'pausedFrom']) expect(again).not.toHaveProperty(member);
  });

  test('no other transitions are allowed', () => {
    expect(() => commitExpiry(running, observed, now)).toThrow('cannot go from running');
    expect(() => complete(expiring, byHook, 0)).toThrow('cannot go from expiring to paused');
    expect(() => resume(committed)).toThrow('cannot go from committed to running');
    expect(() => register(committed, registration('one'), 1, now)).toThrow(
      "sandbox 'one' cannot be registered in its phase (committed)",
    );
    expect(register(complete(committed, byHook, 0), registration('one'), 1, now).incarnation).not.toBe(
      running.incarnation,
    );
  });
});
