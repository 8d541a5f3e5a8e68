import { join } from 'node:path';
import pino from 'pino';
import { afterAll, describe, expect, test } from 'vitest';
import { isReachable, type Registration, type Sandbox } from '../../src/gateway/leases/sandbox.ts';
import {
  acquire,
  commit,
  complete,
  extend,
  fail,
  LEASE_MS,
  postpone,
  register,
  resume,
  setTimeToLive,
} from '../../src/gateway/leases/transitions.ts';
import { EmbeddedStore } from '../../src/gateway/registry/embedded.ts';
import { RedisStore } from '../../src/gateway/registry/redis.ts';
import type { Store } from '../../src/gateway/registry/registry.ts';
import { Registry } from '../../src/gateway/registry/registry.ts';
import { type RedisServer, startRedis } from '../support/redis-server.ts';
import { scratch } from '../support/scratch.ts';

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
const openEmbedded = (): Promise<Store> => EmbeddedStore.open(join(scratch(), 'registry.db'));
async function openRedis(): Promise<Store> {
  redis ??= await startRedis();
  return RedisStore.open(`${redis.url}/${database++}`, pino({ level: 'silent' }));
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
    expect(await registry.list()).toEqual([sandbox]);
    expect(await registry.change('one', () => null)).toBeNull();
    expect((await registry.find('one')).sandbox).toBeNull();
    expect(await registry.list()).toEqual([]);
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
    expect(await registry(store).list()).toHaveLength(1);
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

  test('returns what is due, the longest due first, and the time until the next', async () => {
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
    expect(ids).toEqual(['later', 'late']);
    expect(await idsOf(store.due(1, 0))).toEqual(['later']);
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

const registry = (store: Store) => new Registry(store);

describe('the phases', () => {
  const now = 1_000_000;
  const running = register(null, registration('one'), 10, now);
  const expiring = acquire(running, 'me', now + 10_000);
  const observed = { freeze: null, collapse: null };
  const committed = commit(expiring, observed, now + 11_000);

  test('a sandbox is reachable while it is running, until its deadline', () => {
    expect(isReachable(running, now + 9999)).toBe(true);
    expect(isReachable(running, now + 10_000)).toBe(false);
    expect(isReachable(setTimeToLive(running, 60, now), now + 10_000)).toBe(true);
    for (const other of [expiring, committed]) expect(isReachable(other, now)).toBe(false);
  });

  test('a longer time to live is accepted until committed, and refused from then on', () => {
    expect(commit(extend(expiring, 60, now + 10_500), observed, now + 11_000).phase).toBe('thawing');
    expect(committed.phase).toBe('committed');
    expect(() => extend(committed, 60, now)).toThrow("sandbox 'one' has expired");
    expect(() => setTimeToLive(complete(committed) as Sandbox, 60, now)).toThrow("sandbox 'one' is paused");
  });

  test('a claimed sandbox is claimed by another gateway when the lease is over, and not before', () => {
    expect(acquire(running, 'me', now)).toBe(running);
    expect(acquire(expiring, 'you', now + 10_000 + LEASE_MS - 1)).toBe(expiring);
    const taken = acquire(expiring, 'you', now + 10_000 + LEASE_MS);
    expect(taken).toMatchObject({ phase: 'expiring', expiries: 1, claim: { owner: 'you' } });
  });

  test('a failed expiry is tried again after a longer delay each time', () => {
    const thawing = fail(committed, now + 12_000);
    expect(thawing).toMatchObject({ phase: 'thawing', failures: 1, retryAt: now + 13_000 });
    const again = resume(thawing);
    expect(acquire(again, 'me', now + 12_999)).toBe(again);
    expect(acquire(again, 'me', now + 13_000)).toMatchObject({ phase: 'expiring', expiries: 2 });
    const delays: number[] = [];
    for (let one = thawing; delays.length < 10; ) {
      one = postpone(one, now);
      delays.push(one.retryAt - now);
    }
    expect(delays.slice(0, 2)).toEqual([2000, 4000]);
    expect(delays.slice(-3)).toEqual([256_000, 300_000, 300_000]);
  });

  test('no other transitions are allowed', () => {
    expect(() => commit(running, observed, now)).toThrow('cannot go from running');
    expect(() => complete(expiring)).toThrow('cannot go from expiring to paused');
    expect(() => resume(committed)).toThrow('cannot go from committed to running');
    expect(() => register(committed, registration('one'), 1, now)).toThrow(
      "sandbox 'one' is about to expire",
    );
    expect(register(complete(committed), registration('one'), 1, now).incarnation).not.toBe(
      running.incarnation,
    );
  });
});
