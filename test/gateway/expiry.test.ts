import { once } from 'node:events';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { json } from 'node:stream/consumers';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { connectTo } from '../support/clients/clients.ts';
import { needs } from '../support/machine/needs.ts';
import { runs } from '../support/machine/proc.ts';
import { scratch } from '../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../support/programs/daemon.ts';
import { API_KEY, startGateway, type TestGateway, toSandbox } from '../support/programs/gateway.ts';
import { type HookCall, hookCalls, isFrozen, phase, record } from '../support/servers/hook.ts';
import { until } from '../support/until.ts';

let daemon: TestDaemon;

beforeEach(() => needs('cgroup v2'));
beforeAll(async () => {
  daemon = await startDaemon();
});

afterAll(() => daemon[Symbol.asyncDispose]());

const health = (gateway: TestGateway, id: string) =>
  fetch(`${gateway.url}/health`, { headers: toSandbox(id) }).then(({ status }) => status);

const endAt = async (gateway: TestGateway, id: string) =>
  Date.parse((await gateway.call(`GET /sandboxes/${id}`)).body.endAt);

describe('a hook that succeeds', () => {
  let file: string;
  let gateway: TestGateway;

  beforeAll(async () => {
    file = join(daemon.scratch, 'told');
    gateway = await startGateway({ args: [`--hook=${record(file)}`] });
  });

  afterAll(() => gateway[Symbol.asyncDispose]());

  test('runs once, with the figures of freeze and collapse; the guest is frozen, its clients are disconnected', async () => {
    await gateway.register('one', daemon.port, { metadata: { owner: 'ada' } });
    const { process } = connectTo(gateway.url);
    const headers = toSandbox('one');
    const stream = process.start({ process: { cmd: 'sleep', args: ['1000'] } }, { headers });
    const messages = stream[Symbol.asyncIterator]();
    await messages.next();
    expect((await gateway.call('POST /sandboxes/one/timeout', { timeout: 0 })).status).toBe(204);
    await expect(messages.next()).rejects.toThrow();
    await phase(gateway, 'one', 'paused');
    expect(hookCalls(file)).toEqual([
      expect.objectContaining({
        ...{ sandboxID: 'one', outcome: 'pause', attempt: 1, metadata: { owner: 'ada' }, port: daemon.port },
        freeze: expect.objectContaining({ requested: 2, frozen: 2, notFrozen: 0 }),
        collapse: expect.objectContaining({ chunks: expect.any(Number), elapsedMs: expect.any(Number) }),
      }),
    ]);
    expect(isFrozen(daemon.cgroupRoot)).toBe(true);
    expect(await health(gateway, 'one')).toBe(502);
  });

  test('a paused sandbox has no time to live until it is registered again', async () => {
    for (const [operation, body] of [
      ['timeout', { timeout: 10 }],
      ['refreshes', { duration: 10 }],
    ] as const) {
      const answer = await gateway.call(`POST /sandboxes/one/${operation}`, body);
      expect(answer.body).toEqual({ code: 404, message: "sandbox 'one' is paused: resume it first" });
    }
    await fetch(`${daemon.url}/unfreeze`, { method: 'POST' });
    await gateway.register('one', daemon.port);
    expect(await health(gateway, 'one')).toBe(204);
    expect(hookCalls(file)).toHaveLength(1);
  });

  test('a sandbox with onExpiry remove has no record afterwards', async () => {
    await gateway.register('two', daemon.port, { onExpiry: 'remove', timeout: 0 });
    expect(await phase(gateway, 'two', 'gone')).toBe('gone');
    expect(hookCalls(file).at(-1)).toMatchObject({ sandboxID: 'two', outcome: 'remove' });
    await fetch(`${daemon.url}/unfreeze`, { method: 'POST' });
  });

  test('a sandbox with onExpiry remove is removed also when its daemon does not respond', async () => {
    await gateway.register('dead', 1, { onExpiry: 'remove', timeout: 0 });
    expect(await phase(gateway, 'dead', 'gone')).toBe('gone');
    expect(hookCalls(file).at(-1)).toMatchObject({ sandboxID: 'dead', freeze: null, collapse: null });
  });

  test('timeout sets the time to live, refreshes extend it and never shorten it', async () => {
    await gateway.register('three', daemon.port, { timeout: 100 });
    const first = await endAt(gateway, 'three');
    await gateway.call('POST /sandboxes/three/refreshes', { duration: 10 });
    expect(await endAt(gateway, 'three')).toBe(first);
    await gateway.call('POST /sandboxes/three/refreshes', { duration: 3600 });
    expect(await endAt(gateway, 'three')).toBeGreaterThan(first + 3_400_000);
    await gateway.call('POST /sandboxes/three/timeout', { timeout: 50 });
    expect(await endAt(gateway, 'three')).toBeLessThan(first);
    await gateway.call('DELETE /sandboxes/three');
  });

  test('the metrics count expiries, hooks and refused requests', async () => {
    const { text, headers } = await gateway.call('GET /gateway/metrics');
    expect(headers.get('content-type')).toContain('text/plain');
    expect(text).toContain('envd_gateway_expiries_total{outcome="paused"} 1');
    expect(text).toContain('envd_gateway_expiries_total{outcome="removed"} 2');
    expect(text).toContain('envd_gateway_hooks_total 3');
    expect(text).toMatch(/envd_gateway_requests_total\{result="expired"\} [1-9]/);
  });
});

test('after a failed hook the guest is thawed, and the expiry tried again after a longer delay each time', async () => {
  const directory = scratch();
  const [file, open] = [join(directory, 'told'), join(directory, 'open')];
  await using gateway = await startGateway({
    args: [`--hook=${record(file)}; echo not today; [ -e '${open}' ]`],
  });
  await gateway.register('one', daemon.port, { timeout: 0 });
  const isWarning = ({ msg }: { readonly msg: string }) => msg === 'a step of the lifecycle failed';
  await until('two attempts have failed', () => gateway.log.filter(isWarning).length >= 2);
  expect(gateway.log.find(isWarning)).toMatchObject({
    ...{ sandboxID: 'one', step: 'hook', failures: 1 },
    reason: 'the hook failed (exit code 1): not today',
  });
  await until('the guest runs', () => !isFrozen(daemon.cgroupRoot));
  expect(await health(gateway, 'one')).toBe(502);
  const { text } = await gateway.call('GET /gateway/metrics');
  expect(text).toMatch(/envd_gateway_expiry_failures_total\{step="hook"\} [2-9]/);
  writeFileSync(open, '');
  await phase(gateway, 'one', 'paused');
  expect(hookCalls(file).map(({ attempt }) => attempt)).toEqual(hookCalls(file).map((_, index) => index + 1));
  expect(new Set(hookCalls(file).map(({ expiryID }) => expiryID)).size).toBe(hookCalls(file).length);
  await fetch(`${daemon.url}/unfreeze`, { method: 'POST' });
});

test('a longer time to live after a failure lets the sandbox run on', async () => {
  await using gateway = await startGateway({ args: ['--hook=false'] });
  await gateway.register('one', daemon.port, { timeout: 0 });
  await until('an attempt has failed', () =>
    gateway.log.some(({ msg }) => msg === 'a step of the lifecycle failed'),
  );
  // It is refused while the hook runs once more.
  await until(
    'it is extended',
    async () => (await gateway.call('POST /sandboxes/one/refreshes', { duration: 60 })).status === 204,
  );
  expect(await health(gateway, 'one')).toBe(204);
  const { body } = await gateway.call('GET /sandboxes/one');
  expect(body.phase).toBe('running');
  // It counts until an expiry has succeeded.
  expect(body.failures).toBeGreaterThanOrEqual(1);
});

test('a hook that takes too long is killed with all processes it has started', async () => {
  const file = join(scratch(), 'pids');
  const hook = `sleep 300 & echo $! >>'${file}'; wait`;
  await using gateway = await startGateway({ args: [`--hook=${hook}`, '--hook-timeout=1'] });
  await gateway.register('one', daemon.port, { timeout: 0 });
  const isWarning = ({ msg }: { readonly msg: string }) => msg === 'a step of the lifecycle failed';
  const warning = await until('the attempt has failed', () => gateway.log.find(isWarning));
  expect(warning?.reason).toContain('it took longer than --hook-timeout');
  // On a machine that has no time the first ones may be killed before they have begun.
  await until('one has begun', () => existsSync(file));
  await gateway.call('DELETE /sandboxes/one');
  const running = () => readFileSync(file, 'utf8').trim().split('\n').map(Number).filter(runs);
  await expect.poll(running).toEqual([]);
});

test('a hook behind a URL gets the same request, with an Idempotency-Key', async () => {
  const requests: { readonly body: HookCall; readonly key: unknown }[] = [];
  const server = createServer(async (request, response) => {
    requests.push({ body: (await json(request)) as HookCall, key: request.headers['idempotency-key'] });
    response.writeHead(requests.length === 1 ? 503 : 204).end();
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/expired`;
  await using gateway = await startGateway({ args: [`--hook=${url}`] });
  await gateway.register('one', daemon.port, { timeout: 0 });
  await phase(gateway, 'one', 'paused');
  expect(requests.map(({ body }) => [body.sandboxID, body.attempt])).toEqual([
    ['one', 1],
    ['one', 2],
  ]);
  expect(requests.map(({ key }) => key)).toEqual(requests.map(({ body }) => body.expiryID));
  server.close();
  await fetch(`${daemon.url}/unfreeze`, { method: 'POST' });
});

test("the gateway uses the daemon's token, and shows it only in responses to requests with the key", async () => {
  await using secret = await startDaemon();
  const body = JSON.stringify({ accessToken: 'of-the-guest' });
  await fetch(`${secret.url}/init`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body,
  });
  const file = join(scratch(), 'told');
  await using gateway = await startGateway({ args: [`--hook=${record(file)}`] });
  const { body: registered } = await gateway.register('one', secret.port, {
    envdAccessToken: 'of-the-guest',
  });
  expect(registered.envdAccessToken).toBe('of-the-guest');
  expect((await gateway.call('GET /sandboxes')).text).not.toContain('of-the-guest');
  await gateway.call('POST /sandboxes/one/timeout', { timeout: 0 });
  await phase(gateway, 'one', 'paused');
  expect(JSON.stringify([hookCalls(file), gateway.log])).not.toMatch(new RegExp(`of-the-guest|${API_KEY}`));
});

test('without a hook a sandbox expires, too', async () => {
  await using gateway = await startGateway({ args: ['--on-expiry=remove'] });
  await gateway.register('one', daemon.port, { timeout: 0 });
  expect(await phase(gateway, 'one', 'gone')).toBe('gone');
  await fetch(`${daemon.url}/unfreeze`, { method: 'POST' });
});
