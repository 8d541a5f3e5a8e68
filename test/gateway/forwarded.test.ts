import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startGateway, type TestGateway } from '../support/programs/gateway.ts';
import { exchange, message } from '../support/programs/raw-sandbox.ts';
import { startNginx } from '../support/servers/nginx.ts';
import { until } from '../support/until.ts';

let trusting: TestGateway;
let wary: TestGateway;
let server: Server;
let seen: IncomingHttpHeaders = {};

beforeAll(async () => {
  server = createServer(({ headers }, response) => {
    seen = headers;
    response.end('hello');
  }).listen(0, '127.0.0.1');
  server.on('upgrade', ({ headers }, socket) => {
    seen = headers;
    socket.end('HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n');
  });
  await once(server, 'listening');
  trusting = await startGateway({ args: ['--trusted-proxies=127.0.0.0/8,10.1.0.0/16,fd00::1'] });
  wary = await startGateway({ args: ['--trusted-proxies=10.1.0.0/16'] });
  for (const each of [trusting, wary]) await each.register('one', (server.address() as AddressInfo).port);
});

afterAll(async () => {
  for (const each of [trusting, wary]) await each[Symbol.asyncDispose]();
  server.closeAllConnections();
  server.close();
});

let count = 0;

/** What the sandbox is told of the client of a request with these headers, and what the log tells. */
async function told(gateway: TestGateway, ...lines: readonly string[]) {
  const path = `/${++count}`;
  const head = [`GET ${path} HTTP/1.1`, 'host: a.example', 'svc-sandbox-id: one'];
  // Not the one of several that a client may name.
  const last = lines.some((line) => line.startsWith('connection')) ? [] : ['connection: close'];
  seen = {};
  await exchange(gateway.port, message([...head, ...last, ...lines]));
  const line = await until('it is logged', () => gateway.log.find((each) => each.path === path));
  const names = Object.keys(seen).filter((name) => /forwarded|real-ip/.test(name));
  return { client: line.client, ...Object.fromEntries(names.map((name) => [name.slice(-3), seen[name]])) };
}

const FORGED = [
  ...[
    'X-Forwarded-For: 6.6.6.6',
    'x-forwarded-for: 7.7.7.7',
    'X-Forwarded-Proto: https',
    'X-Real-IP: 6.6.6.6',
  ],
  ...['X-Forwarded-Host: evil', 'X-Forwarded-Port: 1', 'Forwarded: for=6.6.6.6', 'X-Forwarded: for=6.6.6.6'],
];

test('what clients tell of themselves is replaced', async () => {
  const truth = { client: '127.0.0.1', for: '127.0.0.1', oto: 'http', ost: 'a.example' };
  expect(await told(wary)).toEqual(truth);
  expect(await told(wary, ...FORGED)).toEqual(truth);
  const upgrade = ['connection: upgrade', 'upgrade: websocket'];
  expect(await told(wary, ...FORGED, ...upgrade)).toEqual(truth);
  // Named as belonging to the connection alone, it would not be there to be replaced.
  const named = 'connection: close, x-forwarded-for, x-forwarded-proto, x-forwarded-host';
  expect(await told(wary, ...FORGED, named)).toEqual(truth);
});

test('what trusted proxies tell is passed on, and who they are', async () => {
  const lines = [
    'X-Forwarded-For: 9.9.9.9',
    'X-Forwarded-Proto: https',
    'X-Forwarded-Host: b',
    'X-Real-IP: 9.9.9.9',
  ];
  const truth = { client: '9.9.9.9', for: '9.9.9.9, 127.0.0.1', oto: 'https', ost: 'b' };
  expect(await told(trusting, ...lines)).toEqual({ ...truth, '-ip': '9.9.9.9' });
  expect(await told(trusting)).toEqual({
    ...{ client: '127.0.0.1', for: '127.0.0.1', oto: 'http', ost: 'a.example' },
  });
});

test('behind nginx a gateway that trusts it tells of the client, whatever that has sent', async () => {
  await using nginx = await startNginx(trusting.port);
  const ask = async (headers: Readonly<Record<string, string>>) => {
    await fetch(`http://127.0.0.1:${nginx.port}/a/b`, { headers: { 'svc-sandbox-id': 'one', ...headers } });
    return seen;
  };
  const forged = { 'x-forwarded-for': '6.6.6.6', forwarded: 'for=6.6.6.6', 'x-real-ip': '6.6.6.6' };
  const carried = await ask({ ...forged, x_forwarded_for: '6.6.6.6', 'x-forwarded-proto': 'https' });
  expect(carried).toMatchObject({
    ...{ 'x-forwarded-for': '127.0.0.1, 127.0.0.1', 'x-forwarded-proto': 'http' },
    'x-forwarded-host': `127.0.0.1:${nginx.port}`,
  });
  for (const name of ['forwarded', 'x-real-ip', 'x_forwarded_for']) expect(carried).not.toHaveProperty(name);
  expect(await ask({ 'x-request-id': 'own' })).toMatchObject({ 'x-request-id': 'own' });
});

test('the client is the last address that no trusted proxy has', async () => {
  const clientOf = async (...lines: string[]) => (await told(trusting, ...lines)).client;
  expect(await clientOf('X-Forwarded-For: 6.6.6.6, 9.9.9.9, 10.1.2.3')).toBe('9.9.9.9');
  expect(
    await clientOf('X-Forwarded-For: 6.6.6.6', 'X-Forwarded-For: 9.9.9.9,fd00::1, ::ffff:10.1.2.3'),
  ).toBe('9.9.9.9');
  expect(await clientOf('X-Forwarded-For: 6.6.6.6, nonsense, 10.1.2.3')).toBe('10.1.2.3');
  expect(await clientOf('X-Forwarded-For: 10.1.2.3')).toBe('10.1.2.3');
  expect(await clientOf(`X-Forwarded-For: ${'10.1.0.1,'.repeat(1000)}`)).toBe('10.1.0.1');
  expect(String(seen['x-forwarded-for']).length).toBeLessThan(32 * 12);
});
