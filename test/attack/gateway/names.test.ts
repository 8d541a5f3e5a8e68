import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { API_KEY, startGateway, type TestGateway } from '../../support/programs/gateway.ts';
import { exchange, message, type RawSandbox, startRawSandbox } from '../../support/programs/raw-sandbox.ts';

/* Hosts that name sandboxes, and hosts that only seem to. */

let gateway: TestGateway;
let sandbox: RawSandbox;
let other: RawSandbox;
/** The first lines of the requests that the sandboxes got. */
let seen: string[];

const answer = (name: string) => (socket: { end(text: string): void }, head: string) => {
  seen.push(`${name}: ${head.split('\r\n', 1)[0]}`);
  socket.end('HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok');
};

beforeAll(async () => {
  [gateway, sandbox, other] = await Promise.all([
    startGateway({ args: ['--domain=Sandboxes.test', '--allow-ports=1-65535'] }),
    startRawSandbox(answer('box')),
    startRawSandbox(answer('Big')),
  ]);
  await gateway.register('box', sandbox.port, { timeout: 3600 });
  await gateway.register('Big', other.port, { timeout: 3600 });
});

beforeEach(() => {
  seen = [];
});

afterAll(async () => {
  for (const each of [gateway, sandbox, other]) await each[Symbol.asyncDispose]();
});

const send = (target: string, ...lines: readonly string[]) =>
  exchange(gateway.port, message([`GET ${target} HTTP/1.1`, ...lines, 'connection: close']));

const status = (response: string) => Number(/^HTTP\/1\.1 (\d+)/.exec(response)?.[1]);

test.each([
  ['49983-box.sandboxes.test'],
  ['49983-BOX.Sandboxes.TEST'],
  ['49983-box.sandboxes.test:443'],
  ['49983-box.sandboxes.test:'],
  ['49983-box.sandboxes.test.'],
  ['49983-box.sandboxes.test.:8443'],
])('%s is the daemon of a sandbox', async (host) => {
  expect(status(await send('/health?a', `host: ${host}`))).toBe(200);
  expect(seen).toEqual(['box: GET /health?a HTTP/1.1']);
  seen = [];
  expect(status(await send(`http://${host}/health`, `host: ${host}`))).toBe(200);
  expect(seen).toEqual(['box: GET /health HTTP/1.1']);
});

test.each([
  ['a malformed name', '49983-.sandboxes.test'],
  ['no id', '49983.sandboxes.test'],
  ['two labels', '49983-box.a.sandboxes.test'],
  ['an empty label', '49983-box..sandboxes.test'],
  ['port 0', '0-box.sandboxes.test'],
  ['a port with zeros', '049983-box.sandboxes.test'],
  ['a port that is none', '70000-box.sandboxes.test'],
  ['a sign', '49983-box%2e.sandboxes.test'],
  ['a user', '49983-box@sandboxes.test.sandboxes.test'],
  ['letters beyond ASCII', '49983-b\u00f6x.sandboxes.test'],
  ['another alphabet', Buffer.from('49983-bо\u0445.sandboxes.test').toString('latin1')],
  ['a list', '49983-box.sandboxes.test, 49983-box.sandboxes.test'],
])('%s is refused: %s', async (_what, host) => {
  const response = await send('/health', `host: ${host}`);
  expect(status(response)).toBe(400);
  expect(seen).toEqual([]);
});

test.each([
  ['the domain itself', 'sandboxes.test'],
  ['the API', 'api.sandboxes.test'],
  ['another domain that ends so', '49983-box.evilsandboxes.test'],
  ['another domain behind', '49983-box.sandboxes.test.evil.test'],
  ['digits of another alphabet', Buffer.from('\uff14-box.sandboxes.test').toString('latin1')],
  ['two final dots', '49983-box.sandboxes.test..'],
  ['no domain', '49983-box'],
  ['an address', '127.0.0.1:49983'],
])('%s names no sandbox: %s', async (_what, host) => {
  expect(status(await send('/gateway/health', `host: ${host}`))).toBe(204);
  const response = await send('/health', `host: ${host}`);
  expect(response).toContain('neither header Svc-Sandbox-Id nor the host, <port>-<id>.sandboxes.test');
  expect(status(await send('/health', `host: ${host}`, 'svc-sandbox-id: box'))).toBe(200);
});

test('forwarded hosts, which clients may write, name nothing', async () => {
  for (const header of [
    'x-forwarded-host',
    'x-host',
    'x-original-host',
    ':authority',
    'x-http-host-override',
  ]) {
    const response = await send('/health', 'host: a', `${header}: 49983-box.sandboxes.test`);
    expect(status(response)).toBe(400);
  }
  const forwarded = 'forwarded: host=49983-box.sandboxes.test';
  expect(status(await send('/health', 'host: a', forwarded))).toBe(400);
  expect(seen).toEqual([]);
});

test('several hosts are refused, also equal ones, and in whatever order', async () => {
  const box = 'host: 49983-box.sandboxes.test';
  for (const lines of [
    [box, box],
    [box, 'host: a'],
    ['host: a', box],
    [box, 'Host : b', 'svc-sandbox-id: box'],
  ])
    expect(status(await send('/health', ...lines))).toBe(400);
  expect(seen).toEqual([]);
});

test('a target and a host that differ are refused: servers behind disagree on which one counts', async () => {
  const [box, big] = ['49983-box.sandboxes.test', '49983-big.sandboxes.test'];
  for (const [target, host] of [
    [`http://${box}/health`, 'a'],
    ['http://a/health', box],
    [`http://${box}/health`, big],
    [`http://a@${box}/health`, box],
    [`http://${box}\\@a/health`, box],
    ['http:///health', box],
  ] as const) {
    const response = await send(target, `host: ${host}`);
    expect([target, status(response)]).toEqual([target, 400]);
  }
  expect(seen).toEqual([]);
});

test('headers must say the same as the host', async () => {
  const box = 'host: 49983-box.sandboxes.test';
  for (const lines of [
    ['svc-sandbox-id: box'],
    ['svc-sandbox-port: 49983'],
    ['svc-sandbox-id: box', 'svc-sandbox-port: 49983'],
  ])
    expect(status(await send('/', box, ...lines))).toBe(200);
  for (const lines of [
    ['svc-sandbox-id: Big'],
    ['svc-sandbox-id: Box'],
    ['svc-sandbox-port: 80'],
    ['svc-sandbox-id: box', 'svc-sandbox-port: 80'],
    ['svc-sandbox-id: box', 'svc-sandbox-id: Big'],
  ])
    expect(status(await send('/', box, ...lines))).toBe(400);
  expect(seen).toHaveLength(3);
});

test('an id with upper-case letters has no name, and no other sandbox gets its requests', async () => {
  for (const host of ['49983-Big.sandboxes.test', '49983-big.sandboxes.test'])
    expect(status(await send('/', `host: ${host}`))).toBe(502);
  expect((await gateway.call('GET /sandboxes/Big')).body.domain).toBeNull();
  expect((await gateway.call('GET /sandboxes/box')).body.domain).toBe('sandboxes.test');
  expect(seen).toEqual([]);
});

test.each([
  '/init',
  '/%69nit',
  '/a/../freeze',
  '//collapse',
  '/upgrade?a',
  'http://49983-box.sandboxes.test/init',
])('%s is closed by name, too', async (target) => {
  const box = 'host: 49983-box.sandboxes.test';
  expect(status(await send(target, box))).toBe(403);
  // The daemon under the port that it was registered with.
  const own = target.replace('49983', String(sandbox.port));
  expect(status(await send(own, `host: ${sandbox.port}-box.sandboxes.test`))).toBe(403);
  // The daemon of another sandbox at the same address.
  expect(status(await send('/', `host: ${other.port}-box.sandboxes.test`))).toBe(403);
  expect(seen).toEqual([]);
  expect(status(await send(target, box, `x-api-key: ${API_KEY}`))).toBe(200);
});

test('where keys are required, a name needs one, and only a preflight is answered without', async () => {
  await using strict = await startGateway({ args: ['--domain=sandboxes.test', '--require-key'] });
  await strict.register('box', sandbox.port);
  const ask = (...lines: readonly string[]) =>
    exchange(strict.port, message([...lines, 'host: 49983-box.sandboxes.test', 'connection: close']));
  expect(status(await ask('GET / HTTP/1.1'))).toBe(401);
  const preflight = ['OPTIONS / HTTP/1.1', 'origin: https://a.test', 'access-control-request-method: GET'];
  expect(await ask(...preflight)).toMatch(/^HTTP\/1\.1 204 .*access-control-allow-origin: \*/s);
  expect(seen).toEqual([]);
  expect(status(await ask('GET / HTTP/1.1', `x-api-key: ${API_KEY}`))).toBe(200);
});

test('without a domain hosts name nothing', async () => {
  await using plain = await startGateway();
  await plain.register('box', sandbox.port);
  const lines = ['GET / HTTP/1.1', 'host: 49983-box.sandboxes.test', 'connection: close'];
  expect(status(await exchange(plain.port, message(lines)))).toBe(400);
  expect((await plain.call('GET /sandboxes/box')).body.domain).toBeNull();
});
