import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { createClient } from '@redis/client';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { startGateway, type TestGateway, toSandbox } from '../../support/programs/gateway.ts';
import { type RedisServer, startRedis } from '../../support/servers/redis-server.ts';
import { type Relay, startRelay } from '../../support/servers/relay.ts';

/** Without messages and beats a change counts after ten seconds, and on a busy machine after far less with them. */
const BOUND_MS = 5000;

let redis: RedisServer;
let relay: Relay;
/** Knows Redis through the relay. */
let gateway: TestGateway;
let other: TestGateway;
const servers: Server[] = [];

/** A service in a sandbox that answers with its name. */
async function service(name: string): Promise<number> {
  const server = createServer((_request, response) => response.end(name)).listen(0, '127.0.0.1');
  await once(server, 'listening');
  servers.push(server);
  return (server.address() as AddressInfo).port;
}

let first: number;
let second: number;

beforeAll(async () => {
  redis = await startRedis();
  relay = await startRelay(Number(new URL(redis.url).port));
  [first, second] = [await service('first'), await service('second')];
  gateway = await startGateway({ args: [`--redis=redis://127.0.0.1:${relay.port}`] });
  other = await startGateway({ args: [`--redis=${redis.url}`] });
});

afterAll(async () => {
  for (const each of servers) each.close();
  for (const each of servers) each.closeAllConnections();
  for (const each of [gateway, other, relay, redis]) await each[Symbol.asyncDispose]();
});

/** The body, or the status of a refusal. */
async function reach(id: string, port?: number, from = gateway): Promise<string> {
  try {
    const response = await fetch(from.url, { headers: toSandbox(id, port) });
    const text = await response.text();
    return response.ok ? text : String(response.status);
  } catch {
    // As those in flight are when their sandbox is removed.
    return 'closed';
  }
}

const GONE = /^(50[02]|closed)$/;

/** Calls again and again until the result has been the wanted one for a while; returns what else came, and how late. */
async function lastOther(call: () => Promise<string>, wanted: string | RegExp, forMs = 300): Promise<number> {
  const started = performance.now();
  let last = 0;
  while (performance.now() - started - last < forMs) {
    const asked = performance.now() - started;
    const result = await call();
    if (typeof wanted === 'string' ? result !== wanted : !wanted.test(result)) last = asked;
    if (last > 10_000) break;
    await delay(2);
  }
  return last;
}

async function commands(): Promise<number> {
  const client = createClient({ url: redis.url });
  await client.connect();
  const info = await client.info('stats');
  client.destroy();
  return Number(/total_commands_processed:(\d+)/.exec(info)?.[1]);
}

test('requests to a sandbox that is known do not ask Redis, nor do those to its ports', async () => {
  await gateway.register('hot', first, { timeout: 600 });
  for (const port of [undefined, second]) {
    expect(await reach('hot', port)).toMatch(/first|second/);
    const before = await commands();
    for (let round = 0; round < 300; round++) await reach('hot', port);
    // Both gateways look for what is due, and this one asks whether all messages have come.
    expect((await commands()) - before).toBeLessThan(250);
  }
});

test('a removal counts at once on the gateway that did it, whatever is in flight', async () => {
  for (let round = 0; round < 20; round++) {
    await gateway.register('gone', first, { timeout: 600 });
    let over = false;
    const busy = Array.from({ length: 8 }, async () => {
      while (!over) await reach('gone');
    });
    expect(await reach('gone')).toBe('first');
    expect((await gateway.call('DELETE /sandboxes/gone')).status).toBe(204);
    expect(await Promise.all(Array.from({ length: 8 }, () => reach('gone')))).toEqual(Array(8).fill('502'));
    over = true;
    await Promise.all(busy);
  }
});

test('what another gateway has changed counts here in time, and for good', async () => {
  await other.register('moved', first, { timeout: 600 });
  const busy = { over: false };
  const load = Array.from({ length: 4 }, async () => {
    while (!busy.over) await reach('moved');
  });
  expect(await reach('moved')).toBe('first');
  await other.register('moved', second, { timeout: 600 });
  expect(await lastOther(() => reach('moved'), 'second')).toBeLessThan(BOUND_MS);
  await other.call('POST /sandboxes/moved/timeout', { timeout: 0 });
  expect(await lastOther(() => reach('moved'), GONE)).toBeLessThan(BOUND_MS);
  await other.call('DELETE /sandboxes/moved');
  await other.register('moved', second, { timeout: 600 });
  expect(await lastOther(() => reach('moved'), 'second')).toBeLessThan(BOUND_MS);
  busy.over = true;
  await Promise.all(load);
  await other.call('DELETE /sandboxes/moved');
});

test('a read that began before a change is not kept behind it', async () => {
  for (let round = 0; round < 20; round++) {
    const id = `race-${round}`;
    await other.register(id, first, { timeout: 600 });
    // None is kept yet, so each of these reads, some of them while the record is being removed.
    const racing = Array.from({ length: 6 }, async (_, index) => {
      for (let turn = 0; turn < index; turn++) await Promise.resolve();
      return reach(id);
    });
    await Promise.all([...racing, other.call(`DELETE /sandboxes/${id}`)]);
    expect(await lastOther(() => reach(id), GONE, 5)).toBeLessThan(BOUND_MS);
  }
});

test('a port that becomes a daemon closes, at once on the gateway that did it', async () => {
  await gateway.register('one', first, { timeout: 600 });
  for (const by of [gateway, other]) {
    const port = await service('new');
    expect(await reach('one', port)).toBe('new');
    await by.register('two', port, { timeout: 600 });
    if (by === gateway) expect(await reach('one', port)).toBe('403');
    else expect(await lastOther(() => reach('one', port), '403')).toBeLessThan(BOUND_MS);
    await by.call('DELETE /sandboxes/two');
  }
});

test('changes count in time while the connection to Redis is closed again and again', async () => {
  for (let round = 0; round < 10; round++) {
    await other.register('flapping', first, { timeout: 600 });
    await expect.poll(() => reach('flapping')).toBe('first');
    // Perhaps between the change and its message.
    const removed = other.call('DELETE /sandboxes/flapping');
    relay.reset();
    await removed;
    relay.reset();
    expect(await lastOther(() => reach('flapping'), GONE, 50)).toBeLessThan(BOUND_MS);
  }
});

test('changes count in time when the messages of Redis silently stop', async () => {
  const cutOff = await startRelay(Number(new URL(redis.url).port));
  onTestFinished(() => cutOff[Symbol.asyncDispose]());
  await using alone = await startGateway({ args: [`--redis=redis://127.0.0.1:${cutOff.port}`] });
  await other.register('silent', first, { timeout: 600 });
  const call = () => reach('silent', undefined, alone);
  expect(await lastOther(call, 'first', 300)).toBe(0);
  cutOff.cut();
  await other.call('DELETE /sandboxes/silent');
  // 503: whether it is still there cannot be known.
  expect(await lastOther(call, GONE, 1000)).toBeLessThan(BOUND_MS);
});
