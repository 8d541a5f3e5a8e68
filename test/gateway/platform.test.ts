import type { Socket } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { INTERFACE_VERSION } from '../../src/base/program/version.ts';
import { startDaemon } from '../support/programs/daemon.ts';
import { API_KEY, startGateway, type TestGateway } from '../support/programs/gateway.ts';
import { exchange, startRawSandbox } from '../support/programs/raw-sandbox.ts';

let gateway: TestGateway;

beforeAll(async () => {
  gateway = await startGateway();
});

afterAll(() => gateway[Symbol.asyncDispose]());

test('a sandbox is registered, looked up, listed and removed', async () => {
  const { body: registered } = await gateway.register('one', 4000, {
    ...{ metadata: { owner: 'ada' }, envdAccessToken: 'secret', timeout: 60 },
  });
  expect(registered).toEqual({
    ...{
      sandboxID: 'one',
      state: 'running',
      phase: 'running',
      address: '127.0.0.1',
      port: 4000,
      failures: 0,
    },
    ...{
      metadata: { owner: 'ada' },
      envdAccessToken: 'secret',
      envdVersion: INTERFACE_VERSION,
      onExpiry: 'pause',
      pauseKeeps: ['memory'],
    },
    ...{ templateID: '', clientID: '', cpuCount: 0, memoryMB: 0, diskSizeMB: 0, domain: null },
    lifecycle: { onTimeout: 'pause', autoResume: false },
    startedAt: expect.any(String),
    endAt: expect.any(String),
  });
  expect(Date.parse(registered.endAt) - Date.parse(registered.startedAt)).toBe(60_000);
  expect((await gateway.call('GET /sandboxes/one')).body).toEqual(registered);
  const { envdAccessToken: _, ...listed } = registered;
  expect((await gateway.call('GET /sandboxes')).body).toEqual([listed]);
  expect((await gateway.call('GET /v2/sandboxes?state=running,paused&metadata=owner%3Dada')).body).toEqual([
    listed,
  ]);
  expect((await gateway.call('GET /v2/sandboxes?metadata=owner%3Dbob')).body).toEqual([]);
  expect((await gateway.call('GET /v2/sandboxes?state=paused')).body).toEqual([]);
  expect((await gateway.call('DELETE /sandboxes/one')).status).toBe(204);
  expect((await gateway.call('DELETE /sandboxes/one')).status).toBe(404);
});

test('without the key only the health of the gateway is open', async () => {
  for (const key of ['', 'wrong', `${'the-key-of-the-platform'} x`]) {
    for (const operation of [
      'GET /sandboxes',
      'POST /sandboxes',
      'POST /sandboxes/x/timeout',
      'GET /gateway/metrics',
    ]) {
      const { status, body } = await gateway.call(operation, undefined, { 'x-api-key': key });
      expect(status).toBe(401);
      expect(body).toEqual({ code: 401, message: 'unauthorized: header X-API-Key is missing or wrong' });
    }
  }
  const { status } = await fetch(`${gateway.url}/sandboxes`);
  expect(status).toBe(401);
  for (const method of ['GET', 'HEAD']) {
    const health = await fetch(`${gateway.url}/gateway/health`, { method });
    expect([health.status, health.headers.get('content-type')]).toEqual([204, null]);
  }
});

test.each([
  ['timeout', {}, /required property 'timeout'/],
  ['timeout', { timeout: -1 }, /timeout must be >= 0/],
  ['timeout', { timeout: 1.5 }, /timeout must be integer/],
  ['timeout', { timeout: '5' }, /timeout must be integer/],
  ['timeout', { timeout: 1e12 }, /timeout must be <= /],
  ['timeout', '{', /not JSON/],
  ['timeout', '[]', /must be object/],
  ['refreshes', { duration: 3601 }, /duration must be <= 3600/],
  ['refreshes', { duration: -1 }, /duration must be >= 0/],
])('%s with %j is refused in words', async (operation, body, message) => {
  await gateway.register('one', 4000);
  const answer = await gateway.call(`POST /sandboxes/one/${operation}`, body);
  expect(answer.status).toBe(400);
  expect(answer.body).toEqual({ code: 400, message: expect.stringMatching(message) });
});

test.each([
  [{}, /sandboxID/],
  [{ sandboxID: '../x', address: 'a' }, /sandboxID must match/],
  [{ sandboxID: 'metrics', address: 'a' }, /sandboxID must match/],
  [{ sandboxID: 'x', address: 'a', cpuCount: 0.5 }, /cpuCount must be integer/],
  [{ sandboxID: 'x', address: 'http://a' }, /address must match/],
  [{ sandboxID: 'x', address: 'a', port: 0 }, /port must be >= 1/],
  [{ sandboxID: 'x', address: 'a', metadata: { a: 1 } }, /metadata\/a must be string/],
  [{ sandboxID: 'x', address: 'a', onExpiry: 'burn' }, /onExpiry must be equal to one of/],
  [{ sandboxID: 'x', address: 'a', typo: 1 }, /additional properties/],
])('a registration of %j is refused in words', async (body, message) => {
  const answer = await gateway.call('POST /sandboxes', body);
  expect(answer.status).toBe(400);
  expect(answer.body.message).toMatch(message);
});

test('an unknown sandbox is 404, what is not built 501', async () => {
  for (const [operation, body] of [
    ['GET /sandboxes/x', undefined],
    ['POST /sandboxes/x/timeout', { timeout: 1 }],
    ['POST /sandboxes/x/refreshes', { duration: 1 }],
  ] as const) {
    const answer = await gateway.call(operation, body);
    expect(answer.body).toEqual({ code: 404, message: "sandbox 'x' is not known" });
  }
  await gateway.register('one', 4000);
  for (const operation of [
    ...['PUT /sandboxes', 'GET /v2/templates'],
    ...['GET /sandboxes/metrics', 'GET /sandboxes/x/logs', 'POST /templates', 'GET /gateway/other'],
    ...['PUT /v2/sandboxes', 'PUT /sandboxes/one/network', 'POST /sandboxes/one/fork', 'GET /snapshots'],
  ]) {
    const { body } = await gateway.call(operation);
    const message = `this gateway has no operation ${operation}: the platform must provide it`;
    expect(body).toEqual({ code: 501, message });
  }
});

test('TRACE is allowed nowhere, and nothing of it reaches a sandbox', async () => {
  for (const path of ['/', '/sandboxes', '/sandboxes/one', '/templates', '/gateway/health', '/other'])
    for (const named of ['', 'svc-sandbox-id: one\r\n']) {
      const bytes = `TRACE ${path} HTTP/1.1\r\nhost: a\r\nx-api-key: ${API_KEY}\r\n${named}connection: close\r\n\r\n`;
      const answer = await exchange(gateway.port, bytes);
      expect(answer).toMatch(/^HTTP\/1\.1 405 /);
      expect(answer).toMatch(/^allow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS\r$/m);
      expect(answer).toMatch(/\r\n\r\n\{"code":405,"message":"method TRACE is not allowed: use [A-Z, ]+"\}$/);
    }
});

test('without hooks nothing is said to be paused or resumed', async () => {
  await gateway.register('one', 4000);
  const pause = await gateway.call('POST /sandboxes/one/pause', {});
  expect(pause.body).toEqual({ code: 501, message: expect.stringContaining('has no --hook') });
  const resume = await gateway.call('POST /sandboxes/one/resume', { timeout: 15 });
  expect(resume.body).toEqual({ code: 501, message: expect.stringContaining('has no --resume-hook') });
  expect((await gateway.call('GET /sandboxes/one')).body).toMatchObject({
    state: 'running',
    phase: 'running',
  });
});

test('a refresh without a body extends by the default time to live', async () => {
  await gateway.register('brief', 4000, { timeout: 5 });
  const before = Date.now();
  expect((await gateway.call('POST /sandboxes/brief/refreshes')).status).toBe(204);
  const { body } = await gateway.call('GET /sandboxes/brief');
  expect(Date.parse(body.endAt)).toBeGreaterThanOrEqual(before + 299_000);
});

test('what published clients create is 501, and nothing is registered', async () => {
  const { body } = await gateway.call('POST /v2/sandboxes', { templateID: 'base', timeout: 300 });
  expect((await gateway.call('POST /sandboxes', { templateID: 'base', timeout: 300 })).status).toBe(501);
  expect(body).toMatchObject({ code: 501, message: expect.stringMatching(/has no --create-hook/) });
  expect((await gateway.call('POST /sandboxes', { templateID: 'base', address: 'a' })).status).toBe(400);
});

test('what the platform tells of a sandbox is shown as published clients expect it', async () => {
  const told = { templateID: 'base-1', alias: 'base', cpuCount: 2, memoryMB: 512, diskSizeMB: 1024 };
  const { body } = await gateway.register('told', 4000, { ...told, owner: 'ada', onExpiry: 'remove' });
  const shown = { ...told, clientID: 'ada', lifecycle: { onTimeout: 'kill', autoResume: false } };
  expect(body).toMatchObject(shown);
  expect((await gateway.call('GET /v2/sandboxes?template=base')).body).toMatchObject([shown]);
  expect((await gateway.call('GET /v2/sandboxes?template=base-1')).body).toMatchObject([shown]);
  expect((await gateway.call('GET /v2/sandboxes?template=other')).body).toEqual([]);
});

test('the metrics of a sandbox are those of its daemon, now', async () => {
  await using daemon = await startDaemon();
  // A token may be any text.
  const [path, accessToken] = [`${daemon.url}/init`, 'tök€n'];
  await fetch(path, { method: 'POST', body: JSON.stringify({ accessToken }) });
  await gateway.register('measured', daemon.port, { envdAccessToken: accessToken });
  const { status, body } = await gateway.call('GET /sandboxes/measured/metrics');
  expect([status, body]).toEqual([
    200,
    [
      {
        timestamp: expect.stringMatching(/^20\d\d-.*Z$/),
        ...{
          timestampUnix: expect.any(Number),
          cpuCount: expect.any(Number),
          cpuUsedPct: expect.any(Number),
        },
        ...{ memTotal: expect.any(Number), memUsed: expect.any(Number), memCache: expect.any(Number) },
        ...{ diskTotal: expect.any(Number), diskUsed: expect.any(Number) },
      },
    ],
  ]);
  const at = body[0].timestampUnix;
  expect((await gateway.call(`GET /sandboxes/measured/metrics?end=${at - 10}`)).body).toEqual([]);
  expect((await gateway.call(`GET /sandboxes/measured/metrics?start=${at - 10}`)).body).toHaveLength(1);
  expect((await gateway.call('GET /sandboxes/measured/metrics?start=now')).status).toBe(400);
  expect((await gateway.call('GET /sandboxes/nobody/metrics')).status).toBe(404);
});

test.each([
  ['is not there', (socket: Socket) => socket.destroy()],
  ['is no daemon', (socket: Socket) => socket.end('HTTP/1.1 200 OK\r\n\r\n{"ts":1}')],
  ['sends too much', (socket: Socket) => socket.end(`HTTP/1.1 200 OK\r\n\r\n${' '.repeat(20_000)}{}`)],
])('a sandbox that %s tells no metrics', async (_what, behaviour) => {
  await using sandbox = await startRawSandbox(behaviour);
  await gateway.register('silent', sandbox.port);
  const { body } = await gateway.call('GET /sandboxes/silent/metrics');
  expect(body).toMatchObject({
    code: 502,
    message: expect.stringMatching(/cannot read the metrics of sandbox 'silent': /),
  });
});
