import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { Rate } from '../../src/gateway/access/rates.ts';
import { scratch } from '../support/machine/scratch.ts';
import { API_KEY, startGateway, type TestGateway, toSandbox } from '../support/programs/gateway.ts';
import { startGuests } from '../support/programs/guests.ts';
import { phase } from '../support/servers/hook.ts';
import { startNginx } from '../support/servers/nginx.ts';
import { startRedis } from '../support/servers/redis-server.ts';
import { until } from '../support/until.ts';

let server: Server;

beforeAll(async () => {
  server = createServer(({ url }, response) => {
    if (url === '/hang') response.write('begun');
    else response.end('hello');
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
});

afterAll(() => {
  server.closeAllConnections();
  server.close();
});

/** A gateway for ada and bob, with one sandbox of each. */
async function start(...args: readonly string[]): Promise<TestGateway> {
  const file = join(scratch(), 'keys');
  writeFileSync(file, 'platform p\nclient ada a\nclient ada a2\nclient bob b\n');
  const gateway = await startGateway({ args: [`--key-file=${file}`, ...args] });
  onTestFinished(() => gateway[Symbol.asyncDispose]());
  for (const owner of ['ada', 'bob'])
    await gateway.register(owner, (server.address() as AddressInfo).port, { timeout: 600, owner });
  return gateway;
}

function ask(gateway: { readonly port: number }, id: string, headers: Readonly<Record<string, string>> = {}) {
  return fetch(`http://127.0.0.1:${gateway.port}/a/b`, { headers: { ...toSandbox(id), ...headers } });
}

/** The answers to so many requests at a time, by status. */
async function flood(many: number, request: () => Promise<Response>) {
  const answers = await Promise.all(Array.from({ length: many }, request));
  const refused = answers.filter(({ status }) => status === 429);
  return { served: answers.filter(({ ok }) => ok).length, refused: refused.length, last: refused.at(-1) };
}

test('a rate has the requests of one second, evenly again, and of each name alone', () => {
  const rate = new Rate(10);
  const take = (name: string, now: number) => rate.take(name, now) === null;
  expect(Array.from({ length: 12 }, () => take('a', 1000))).toEqual([...Array(10).fill(true), false, false]);
  expect(take('b', 1000)).toBe(true);
  expect([take('a', 1099), take('a', 1100), take('a', 1101)]).toEqual([false, true, false]);
  expect(rate.take('a', 1101)?.retryAfter).toBe(1);
  expect(new Rate(null).take('a', 0)).toBe(null);
  // Names beyond number are forgotten, not kept for ever.
  const slow = new Rate(1);
  for (let index = 0; index < 250_000; index++) slow.take(`n${index}`, 0);
  expect(slow.take('n0', 0)).toBe(null);
  expect(slow.take('n249999', 0)).not.toBe(null);
});

test('a sandbox has its rate, whoever asks, and refusals have the body of the contract', async () => {
  const gateway = await start('--sandbox-rate=5');
  const { served, refused, last } = await flood(40, () => ask(gateway, 'ada'));
  expect(served).toBeGreaterThanOrEqual(5);
  expect(refused).toBeGreaterThan(0);
  expect(last?.headers.get('retry-after')).toBe('1');
  expect(last?.headers.get('x-request-id')).toMatch(/^[\da-f-]{36}$/);
  expect(await last?.json()).toEqual({
    ...{ sandboxID: 'ada', code: 429, message: expect.stringContaining("'ada' has had 5 requests") },
  });
  expect((await ask(gateway, 'bob')).status).toBe(200);
  const { text } = await gateway.call('GET /gateway/metrics');
  expect(text).toContain(`envd_gateway_requests_total{result="limited"} ${refused}`);
});

test('a client has its rate with all of its keys, and for platform operations, too', async () => {
  const gateway = await start('--client-rate=5');
  const { served, refused } = await flood(60, () => ask(gateway, 'ada', { 'x-api-key': 'a' }));
  expect(served + refused).toBe(60);
  expect(served).toBeGreaterThanOrEqual(5);
  expect(refused).toBeGreaterThan(0);
  const listed = await flood(60, () => fetch(`${gateway.url}/sandboxes`, { headers: { 'x-api-key': 'a2' } }));
  expect(listed.refused).toBeGreaterThan(0);
  expect(listed.last?.headers.get('retry-after')).toBe('1');
  expect(await listed.last?.json()).toMatchObject({ code: 429 });
  expect((await ask(gateway, 'ada', { 'x-api-key': 'b' })).status).toBe(200);
  expect((await flood(20, () => ask(gateway, 'ada', { 'x-api-key': API_KEY }))).served).toBe(20);
});

test('each gateway counts for itself', async () => {
  await using redis = await startRedis();
  const [first, second] = await Promise.all([
    start('--sandbox-rate=1', `--redis=${redis.url}`),
    startGateway({ args: ['--sandbox-rate=1', `--redis=${redis.url}`] }),
  ]);
  onTestFinished(() => second[Symbol.asyncDispose]());
  expect((await flood(20, () => ask(first, 'ada'))).refused).toBeGreaterThan(0);
  expect((await ask(second, 'ada')).status).toBe(200);
});

test('a client has no more requests in flight than it may have', async () => {
  const gateway = await start('--max-client-requests=2');
  const leave = new AbortController();
  const hang = () =>
    fetch(`${gateway.url}/hang`, {
      headers: { ...toSandbox('ada'), 'x-api-key': 'a' },
      signal: leave.signal,
    });
  const hanging = await Promise.all([hang(), hang()]);
  const refused = await ask(gateway, 'ada', { 'x-api-key': 'a2' });
  expect([refused.status, refused.headers.get('retry-after')]).toEqual([429, '1']);
  expect((await ask(gateway, 'ada', { 'x-api-key': 'b' })).status).toBe(200);
  expect((await ask(gateway, 'ada')).status).toBe(200);
  leave.abort();
  // A response that nobody holds would be closed as garbage.
  for (const each of hanging) await expect(each.text()).rejects.toThrow();
  await until('they are over', async () => (await ask(gateway, 'ada', { 'x-api-key': 'a' })).ok);
});

test('a client has no more operations in flight than it may have, those to sandboxes counted', async () => {
  const hook = join(scratch(), 'go');
  const gateway = await start('--max-client-requests=2', `--hook=until [ -e ${hook} ]; do sleep 0.02; done`);
  await using guests = await startGuests(1);
  await gateway.register('eve', guests.ports[0] ?? 0, { timeout: 600, owner: 'ada' });
  const pause = (name: string, key: string) =>
    fetch(`${gateway.url}/sandboxes/${name}/pause`, { method: 'POST', headers: { 'x-api-key': key } });
  const leave = new AbortController();
  const headers = { ...toSandbox('ada'), 'x-api-key': 'a' };
  const hanging = await fetch(`${gateway.url}/hang`, { headers, signal: leave.signal });
  const first = pause('eve', 'a');
  // Otherwise another one could wait in its place.
  await phase(gateway, 'eve', 'committed');
  await until('it waits', async () => (await pause('eve', 'a2')).status === 429);
  const others = await Promise.all([pause('none', 'b'), pause('none', API_KEY)]);
  expect(others.map(({ status }) => status)).toEqual([404, 404]);
  writeFileSync(hook, '');
  expect((await first).status).toBe(204);
  leave.abort();
  await expect(hanging.text()).rejects.toThrow();
  await until('they are over', async () => (await pause('eve', 'a')).status === 409);
});

test('rates hold behind nginx', async () => {
  const gateway = await start('--sandbox-rate=5');
  await using nginx = await startNginx(gateway.port);
  const { served, refused, last } = await flood(60, () => ask(nginx, 'ada'));
  expect(served + refused).toBe(60);
  expect(refused).toBeGreaterThan(0);
  expect(last?.headers.get('retry-after')).toBe('1');
  expect(await last?.json()).toMatchObject({ sandboxID: 'ada', code: 429 });
});
