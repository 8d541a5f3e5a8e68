import { join } from 'node:path';
import pino from 'pino';
import { afterAll, describe, expect, test } from 'vitest';
import { QuotaReached } from '../../src/gateway/access/quotas.ts';
import { beginCreation } from '../../src/gateway/leases/creation.ts';
import type { Registration } from '../../src/gateway/leases/sandbox.ts';
import { register } from '../../src/gateway/leases/transitions.ts';
import { EmbeddedStore } from '../../src/gateway/registry/embedded.ts';
import { RedisStore } from '../../src/gateway/registry/redis.ts';
import { Registry, type Store } from '../../src/gateway/registry/registry.ts';
import { scratch } from '../support/machine/scratch.ts';
import { type RedisServer, startRedis } from '../support/servers/redis-server.ts';
import { until } from '../support/until.ts';

let redis: RedisServer | null = null;
afterAll(() => redis?.[Symbol.asyncDispose]());

let database = 0;
const openEmbedded = (): Promise<Store> => EmbeddedStore.open(join(scratch(), 'registry.db'));
async function openRedis(): Promise<Store> {
  redis ??= await startRedis();
  const url = `${redis.url}/${database++}`;
  return RedisStore.open(
    { locate: async () => url, replicas: 0, isCluster: false },
    pino({ level: 'silent' }),
  );
}

const registration = (id: string, more: Partial<Registration> = {}): Registration => ({
  ...{ id, address: '127.0.0.1', port: 1, accessToken: null, metadata: {}, envdVersion: '0.6.4' },
  ...{ onExpiry: 'pause', ip: null, owner: 'ada', ...more },
});
const create = (registry: Registry, id: string, quota: object) =>
  registry.put(id, (_, now) => beginCreation(registration(id), 'gateway', now), quota);
const run = (registry: Registry, id: string, more: Partial<Registration> = {}) =>
  registry.put(id, (before, now) => register(before, registration(id, more), 60, now));

describe.each([
  ['embedded', openEmbedded],
  ['redis', openRedis],
])('the %s registry', (kind, open) => {
  test('of many creations at once writes as many as the quota has, and counts those alone', async () => {
    await using store = await open();
    const registry = new Registry(store);
    const results = await Promise.allSettled(
      Array.from({ length: 40 }, (_, index) => create(registry, `s${index}`, { sandboxes: 5, creates: 7 })),
    );
    expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(5);
    expect(await registry.shared.countOf('ada')).toBe(5);
    // Of the seven of a minute, two are left, though 35 were refused.
    await create(registry, 'sixth', { sandboxes: 9, creates: 7 });
    await create(registry, 'seventh', { sandboxes: 9, creates: 7 });
    await expect(create(registry, 'eighth', { sandboxes: 9, creates: 7 })).rejects.toThrow(QuotaReached);
    await expect(create(registry, 'eighth', { sandboxes: 7 })).rejects.toThrow('(quota sandboxes)');
    expect((await registry.find('eighth')).sandbox).toBeNull();
  });

  test('numbers the events of all changes without a gap', async () => {
    await using store = await open();
    const registry = new Registry(store);
    await Promise.all(Array.from({ length: 20 }, (_, index) => run(registry, `s${index}`)));
    await registry.change('s0', () => null);
    // A change that means nothing to a platform is no event.
    await registry.change('s1', (sandbox) => ({ ...sandbox, deadline: sandbox.deadline + 1 }));
    const events = await registry.shared.events(0, 100);
    expect(events.map(({ number }) => number)).toEqual(Array.from({ length: 21 }, (_, index) => index + 1));
    expect(events.at(-1)).toMatchObject({ event: 'removed', reason: 'request', sandboxID: 's0' });
    expect(await registry.shared.events(19, 1)).toMatchObject([{ number: 20 }]);
  });

  test('lets one gateway deliver, and the next one go on behind what is recorded', async () => {
    await using store = await open();
    const { shared } = new Registry(store);
    await run(new Registry(store), 'before');
    // What has happened before is not delivered.
    expect(await shared.deliver('first', 60_000, null)).toBe(1);
    expect(await shared.deliver('first', 60_000, 7)).toBe(7);
    if (kind === 'embedded') return;
    expect(await shared.deliver('second', 60_000, null)).toBeNull();
    expect(await shared.deliver('second', 60_000, 3)).toBeNull();
    expect(await shared.deliver('first', 1, null)).toBe(7);
    const takesOver = () => shared.deliver('second', 60_000, null);
    expect(await until('the other claim has lapsed', takesOver)).toBe(7);
    expect(await shared.deliver('first', 60_000, 8)).toBeNull();
  });

  test('counts the time of sandboxes by owner and template, and never less', async () => {
    await using store = await open();
    const registry = new Registry(store);
    const secondsOf = async (template: string) =>
      (await registry.shared.usage()).find((each) => each.owner === 'ada' && each.template === template)
        ?.seconds ?? 0;
    await run(registry, 'one', { templateID: 'a "b"' });
    await run(registry, 'two', { templateID: 'a "b"' });
    await run(registry, 'three', { templateID: 'other' });
    const grown = await until(
      'time passes',
      () => secondsOf('a "b"'),
      (seconds) => seconds > 0.05,
    );
    await registry.change('one', () => null);
    await registry.change('two', (sandbox) => ({ ...sandbox, phase: 'paused' }));
    const end = await secondsOf('a "b"');
    expect(end).toBeGreaterThanOrEqual(grown);
    const other = await secondsOf('other');
    await until(
      'the other one goes on',
      () => secondsOf('other'),
      (seconds) => seconds > other,
    );
    expect(await secondsOf('a "b"')).toBe(end);
  });

  test('keeps the hosts that are drained', async () => {
    await using store = await open();
    const { shared } = new Registry(store);
    await shared.setDrained('node-1', true);
    await shared.setDrained('node-1', true);
    await shared.setDrained('node-2', true);
    await shared.setDrained('node-2', false);
    expect([...(await shared.drained())]).toEqual(['node-1']);
  });
});
