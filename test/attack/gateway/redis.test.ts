import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createClient } from '@redis/client';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import { startGateway, type TestGateway, toSandbox } from '../../support/programs/gateway.ts';
import { type RedisServer, startRedis } from '../../support/servers/redis-server.ts';
import { info } from '../../support/servers/redis-set.ts';
import { startRelay } from '../../support/servers/relay.ts';
import { until } from '../../support/until.ts';

let redis: RedisServer;
let gateway: TestGateway;
let port: number;

beforeEach(async () => {
  redis = await startRedis();
  onTestFinished(() => redis[Symbol.asyncDispose]());
  gateway = await startGateway({ args: [`--redis=${redis.url}`] });
  onTestFinished(() => gateway[Symbol.asyncDispose]());
  const server = createServer((request, response) => {
    if (request.url === '/stream') response.flushHeaders();
    else response.writeHead(204).end();
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  port = (server.address() as AddressInfo).port;
});

const reach = async (id: string) => (await fetch(gateway.url, { headers: toSandbox(id) })).status;
const health = async () => (await fetch(`${gateway.url}/gateway/health`)).status;

test('a Redis that hangs hangs nothing, and is used again when it goes on', async () => {
  await gateway.register('one', port, { timeout: 600 });
  expect(await reach('one')).toBe(204);
  redis.signal('SIGSTOP');
  // All that wait share one limit, and what comes later is told at once: else this would take for ever.
  const many = () => Array.from({ length: 200 }, (_, index) => (index % 2 ? reach('one') : health()));
  // What is known of the sandbox counts for a moment.
  await until('it is noticed', async () => (await reach('one')) === 503);
  for (let round = 0; round < 3; round++) expect(new Set(await Promise.all(many()))).toEqual(new Set([503]));
  // Longer than a connection may be silent: it is made anew, to a server that still hangs.
  await expect
    .poll(() => gateway.log.some(({ msg }) => msg.startsWith('the registry cannot be reached')))
    .toBe(true);
  redis.signal('SIGCONT');
  await until('it is used again', async () => (await reach('one')) === 204);
  await until('the health check succeeds', async () => (await health()) === 204);
});

test('a Redis whose memory is full is 503, also for health, and reads go on', async () => {
  await gateway.register('one', port, { timeout: 600 });
  await using client = Object.assign(createClient({ url: redis.url }), {
    [Symbol.asyncDispose]: async () => client.destroy(),
  });
  await client.connect();
  await client.configSet({ 'maxmemory-policy': 'noeviction', maxmemory: '1' });
  const registration = { sandboxID: 'two', address: '127.0.0.1', port };
  const refused = await gateway.call('POST /sandboxes', registration);
  expect([refused.status, refused.body.message]).toEqual([503, expect.stringContaining('OOM')]);
  expect((await gateway.call('POST /sandboxes/one/timeout', { timeout: 900 })).status).toBe(503);
  await until('health tells it', async () => (await health()) === 503);
  expect(await (await fetch(`${gateway.url}/gateway/health`)).json()).toMatchObject({
    message: expect.stringContaining('OOM'),
  });
  expect(await reach('one')).toBe(204);
  await client.configSet({ maxmemory: '0' });
  await until('health tells it', async () => (await health()) === 204);
  expect((await gateway.call('POST /sandboxes', registration)).status).toBe(201);
});

test('nothing is asked about sandboxes that nobody uses', async () => {
  for (let index = 0; index < 50; index++) {
    await gateway.register(`s${index}`, port, { timeout: 600 });
    expect(await reach(`s${index}`)).toBe(204);
  }
  await using client = Object.assign(createClient({ url: redis.url }), {
    [Symbol.asyncDispose]: async () => client.destroy(),
  });
  await client.connect();
  await client.configResetStat();
  // Time itself is tested: earlier each of them was asked about once a second.
  await new Promise((resolve) => setTimeout(resolve, 2500));
  const calls = Number(/cmdstat_hmget:calls=(\d+)/.exec(await client.info('commandstats'))?.[1] ?? 0);
  expect(calls).toBeLessThan(10);
});

test('a stream to a sandbox that is removed while the registry cannot be reached ends afterwards', async () => {
  await gateway.register('one', port, { timeout: 600 });
  const stream = await fetch(`${gateway.url}/stream`, { headers: toSandbox('one') });
  const ended = stream.text().catch(() => 'ended');
  await redis.stop();
  await until('it is noticed', async () => (await health()) >= 500);
  await redis.start();
  // Behind the gateway's back, without a notice.
  await using client = Object.assign(createClient({ url: redis.url }), {
    [Symbol.asyncDispose]: async () => client.destroy(),
  });
  await client.connect();
  await client.del('{envd-gateway}:sandbox:one');
  await client.clientKill({ filter: 'TYPE', type: 'pubsub' });
  expect(await ended).toBe('ended');
});

test('a long list is read in pages: neither a page nor the metrics read everything', async () => {
  const register = (index: number) => gateway.register(`s${index}`, port, { timeout: 600 });
  // Not all at a time: on a busy machine they would wait for Redis for too long.
  for (let first = 0; first < 1200; first += 100)
    await Promise.all(Array.from({ length: 100 }, (_, index) => register(first + index)));
  await using client = Object.assign(createClient({ url: redis.url }), {
    [Symbol.asyncDispose]: async () => client.destroy(),
  });
  await client.connect();
  await client.configResetStat();
  expect((await gateway.call('GET /sandboxes?limit=10')).body).toHaveLength(10);
  expect((await gateway.call('GET /gateway/metrics')).text).toContain(
    'envd_gateway_sandboxes{phase="running"} 1200\n',
  );
  const reads = Number(/cmdstat_hget:calls=(\d+)/.exec(await client.info('commandstats'))?.[1]);
  expect(reads).toBeLessThan(600);
  const ids = new Set<string>();
  for (let token = ''; ; ) {
    const { body, headers } = await gateway.call(`GET /v2/sandboxes?limit=500&nextToken=${token}`);
    for (const { sandboxID } of body) ids.add(sandboxID);
    token = headers.get('x-next-token') ?? '';
    if (token === '') break;
  }
  expect(ids.size).toBe(1200);
});

test('an answer that comes twice is taken for that of no other sandbox', async () => {
  const servers = ['even', 'odd'].map((name) =>
    createServer((_, response) => response.end(name)).listen(0, '127.0.0.1'),
  );
  onTestFinished(() => {
    for (const server of servers) server.closeAllConnections();
    for (const server of servers) server.close();
  });
  await Promise.all(servers.map((server) => once(server, 'listening')));
  const [even, odd] = servers.map((server) => (server.address() as AddressInfo).port);
  await using relay = await startRelay(redis.port);
  await using other = await startGateway({ args: [`--redis=redis://127.0.0.1:${relay.port}`] });
  const ids = Array.from({ length: 60 }, (_, index) => `s${index}`);
  for (const [index, id] of ids.entries())
    await gateway.register(id, (index % 2 === 0 ? even : odd) ?? 0, { timeout: 600 });
  const ask = async (id: string) => {
    const response = await fetch(other.url, { headers: toSandbox(id) });
    const text = await response.text();
    return response.ok ? text : response.status;
  };
  for (let piece = 0; piece < 12; piece++) {
    relay.reset();
    await until('Redis is reached', async () => (await fetch(`${other.url}/gateway/health`)).status === 204);
    using _injected = relay.inject({
      kind: 'repeat',
      from: piece % 2 === 0 ? 'client' : 'server',
      piece: piece >> 1,
      at: 0,
    });
    const answers = await Promise.all(ids.map(ask));
    for (const [index, answer] of answers.entries())
      expect([index % 2 === 0 ? 'even' : 'odd', 500, 502, 503], `${ids[index]}, ${piece}`).toContain(answer);
  }
});

test('the connection that waits for replicas dies while the others are made: changes are taken again', async () => {
  await using replica = await startRedis('--replicaof', '127.0.0.1', `${redis.port}`);
  await until('it follows', async () => /master_link_status:up/.test(await info(replica.url, 'replication')));
  let isSpoilt = false;
  await using relay = await startRelay(redis.port, (data, endOthers) => {
    // Sent when both connections are there, before the registry is used.
    if (!isSpoilt || !/\bINFO\r\n/.test(data.toString('latin1'))) return;
    isSpoilt = false;
    endOthers();
  });
  const flags = [`--redis=redis://127.0.0.1:${relay.port}`, '--redis-replicas=1'];
  await using other = await startGateway({ args: flags });
  await other.register('one', port, { timeout: 600 });
  isSpoilt = true;
  relay.reset();
  await until('it is met', () => !isSpoilt);
  const change = async () => (await other.call('POST /sandboxes/one/timeout', { timeout: 900 })).status;
  expect(await until('changes are taken again', change, (status) => status < 300)).toBe(204);
});
