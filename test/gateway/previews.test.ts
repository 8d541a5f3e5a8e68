import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingHttpHeaders, request, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Sandbox } from 'e2b';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { ask, cookieOf } from '../support/clients/by-host.ts';
import { API_KEY, startGateway, type TestGateway } from '../support/programs/gateway.ts';
import { endLoopbackMachines, loopbackHook } from '../support/programs/loopback-machines.ts';
import { owned } from '../support/programs/owned.ts';
import { exchange, message } from '../support/programs/raw-sandbox.ts';
import { startNginx } from '../support/servers/nginx.ts';

const DOMAIN = 'sandboxes.test';
const ADA = { 'x-api-key': 'key-of-ada' };
let gateway: TestGateway;
let machines: string;
/** What a client serves in its sandbox; it tells what it got. */
let server: Server;
let port: number;

beforeAll(async () => {
  machines = mkdtempSync(join(tmpdir(), 'envd-machines-'));
  const keys = join(machines, 'keys');
  writeFileSync(keys, `platform ${API_KEY}-2\nclient ada key-of-ada\nclient eve key-of-eve\n`);
  const hook = loopbackHook(machines);
  gateway = await startGateway({
    args: [
      ...['hook', 'create-hook', 'kill-hook', 'resume-hook'].map((name) => `--${name}=${hook}`),
      ...['--header-prefix=E2b', `--domain=${DOMAIN}`, `--key-file=${keys}`, '--trusted-proxies=127.0.0.0/8'],
    ],
  });
  server = createServer((incoming, response) =>
    response.end(JSON.stringify({ url: incoming.url, headers: incoming.headers })),
  );
  server.on('upgrade', (incoming, socket) => {
    socket.write('HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n');
    socket.end(JSON.stringify(incoming.headers));
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  port = (server.address() as AddressInfo).port;
});

afterAll(async () => {
  server.closeAllConnections();
  server.close();
  await gateway[Symbol.asyncDispose]();
  endLoopbackMachines(machines);
  rmSync(machines, { recursive: true, force: true });
});

const options = () => ({
  ...{ apiKey: 'key-of-ada', apiUrl: gateway.url, sandboxUrl: gateway.url, validateApiKey: false },
  timeoutMs: 60_000,
});

/** A private sandbox, as the published client creates one. */
async function create(): Promise<Sandbox> {
  const sandbox = await Sandbox.create({ ...options(), network: { allowPublicTraffic: false } });
  onTestFinished(async () => void (await sandbox.kill()));
  return sandbox;
}

const hostOf = ({ sandboxId }: Sandbox) => `${port}-${sandboxId}.${DOMAIN}`;
const told = (text: string) => JSON.parse(text) as { url: string; headers: IncomingHttpHeaders };

test('the ports of a private sandbox need its token, by header and by name, and its daemon does not', async () => {
  const sandbox = await create();
  const { trafficAccessToken: token = '' } = sandbox;
  expect(token).toMatch(/^[0-9a-f]{64}$/);
  expect((await sandbox.commands.run('echo here')).stdout).toBe('here\n');
  expect((await Sandbox.connect(sandbox.sandboxId, options())).trafficAccessToken).toBe(token);
  expect((await gateway.call(`GET /sandboxes/${sandbox.sandboxId}`)).body).toMatchObject({
    network: { allowPublicTraffic: false },
    trafficAccessToken: token,
  });
  const { text: listed } = await gateway.call('GET /v2/sandboxes');
  expect(listed).toContain(sandbox.sandboxId);
  expect(listed).not.toContain(token);
  const byHeader = { 'e2b-sandbox-id': sandbox.sandboxId, 'e2b-sandbox-port': port };
  for (const named of [byHeader, { host: hostOf(sandbox) }]) {
    expect((await ask(gateway.port, '/', named)).status).toBe(403);
    expect((await ask(gateway.port, '/', { ...named, 'e2b-traffic-access-token': 'wrong' })).status).toBe(
      403,
    );
    const { status, text } = await ask(gateway.port, '/a?b', { ...named, 'e2b-traffic-access-token': token });
    expect([status, told(text).url]).toEqual([200, '/a?b']);
    expect(text).not.toContain(token);
  }
  const refused = await ask(gateway.port, '/', byHeader);
  expect(JSON.parse(refused.text)).toEqual({
    sandboxID: sandbox.sandboxId,
    message: `port ${port} of sandbox '${sandbox.sandboxId}' is private: send its traffic access token as E2b-Traffic-Access-Token, or open a preview link`,
    code: 403,
  });
});

test('a link opens one port, is turned into a cookie, and keeps path and query', async () => {
  const sandbox = await create();
  const wanted = { port, path: '/a%20b//c?d=1&e#f', expiresIn: 60 };
  const operation = `POST /sandboxes/${sandbox.sandboxId}/previews`;
  const made = await gateway.call(operation, wanted, { ...ADA, 'x-forwarded-proto': 'https' });
  expect(made.status).toBe(201);
  const url = new URL(made.body.url);
  expect(url.origin).toBe(`https://${hostOf(sandbox)}:${gateway.port}`);
  expect(url.hash).toBe('#f');
  expect(Date.parse(made.body.expiresAt) - Date.now()).toBeGreaterThan(50_000);
  const host = { host: hostOf(sandbox) };
  const opened = await ask(gateway.port, `${url.pathname}${url.search}`, {
    ...host,
    'x-forwarded-proto': 'https',
  });
  expect([opened.status, opened.headers.location]).toEqual([303, '/a%20b//c?d=1&e']);
  expect(opened.headers).toMatchObject({ 'referrer-policy': 'no-referrer', 'cache-control': 'no-store' });
  expect(opened.headers['set-cookie']?.[0]).toMatch(
    /^e2b-preview=\d+\.[\w-]{43}; Path=\/; Max-Age=(?:5\d|60); HttpOnly; SameSite=Lax; Secure$/,
  );
  const cookie = `mine=1; ${cookieOf(opened)}; other="2"`;
  const { status, text } = await ask(gateway.port, opened.headers.location ?? '', { ...host, cookie });
  expect([status, told(text).url]).toEqual([200, '/a%20b//c?d=1&e']);
  expect(told(text).headers.cookie).toBe('mine=1; other="2"');
  expect((await ask(gateway.port, '/', { ...host, cookie }, 'POST')).status).toBe(200);
});

test('a WebSocket is opened by the cookie of its page, or by the token', async () => {
  const sandbox = await create();
  const { body } = await gateway.call(`POST /sandboxes/${sandbox.sandboxId}/previews`, { port }, ADA);
  const host = { host: hostOf(sandbox) };
  const opened = await ask(gateway.port, new URL(body.url).search.replace(/^/, '/'), host);
  const upgrade = { ...host, connection: 'Upgrade', upgrade: 'websocket' };
  const open = async (shown: Readonly<Record<string, string>>) => {
    const outgoing = request({
      host: '127.0.0.1',
      port: gateway.port,
      headers: { ...upgrade, ...shown },
    }).end();
    return Promise.race([
      once(outgoing, 'upgrade').then(() => 101),
      once(outgoing, 'response').then(([response]) => response.statusCode as number),
    ]);
  };
  expect(await open({})).toBe(403);
  expect(await open({ cookie: cookieOf(opened) })).toBe(101);
  expect(await open({ 'e2b-traffic-access-token': sandbox.trafficAccessToken ?? '' })).toBe(101);
});

test('links and tokens end with a new token, with another owner, and with the sandbox', async () => {
  const register = async (more: object) =>
    (await gateway.register('box', 1, { timeout: 600, owner: 'ada', ...more })).body.trafficAccessToken as
      | string
      | undefined;
  const status = async (token = '') =>
    (await ask(gateway.port, '/', { host: `${port}-box.${DOMAIN}`, 'e2b-traffic-access-token': token }))
      .status;
  const first = await register({ allowPublicTraffic: false });
  const { body } = await gateway.call('POST /sandboxes/box/previews', { port }, ADA);
  const link = () =>
    ask(gateway.port, new URL(body.url).search.replace(/^/, '/'), { host: `${port}-box.${DOMAIN}` });
  expect([await status(first), (await link()).status]).toEqual([200, 303]);
  // Registered again, for example after a move, without a word about it.
  expect(await register({})).toBe(first);
  expect([await status(first), (await link()).status]).toEqual([200, 303]);
  const second = await register({ allowPublicTraffic: false });
  expect(second).not.toBe(first);
  expect([await status(first), (await link()).status, await status(second)]).toEqual([403, 403, 200]);
  expect(await register({ owner: 'eve' })).toBeUndefined();
  expect(await register({ owner: 'ada' })).toBeUndefined();
  expect((await gateway.call('POST /sandboxes/box/previews', { port }, ADA)).body.message).toContain(
    'is public',
  );
  const third = await register({ allowPublicTraffic: false });
  await gateway.call('DELETE /sandboxes/box');
  expect(await status(third)).toBe(502);
  expect(await register({})).toBeUndefined();
  expect(await register({ allowPublicTraffic: true })).toBeUndefined();
  await gateway.call('DELETE /sandboxes/box');
});

test('links are made by the owner and the platform, for names', async () => {
  await gateway.register('box', 1, { timeout: 600, owner: 'ada', allowPublicTraffic: false });
  await gateway.register('Box', 1, { timeout: 600, owner: 'ada', allowPublicTraffic: false });
  const make = async (id: string, body: object, headers: Record<string, string> = ADA) =>
    (await gateway.call(`POST /sandboxes/${id}/previews`, body, headers)).status;
  expect(await make('box', { port }, { 'x-api-key': 'key-of-eve' })).toBe(404);
  expect(await make('box', { port }, { 'x-api-key': 'none' })).toBe(401);
  expect(await make('box', { port }, {})).toBe(201);
  expect(await make('Box', { port })).toBe(412);
  for (const wrong of [
    {},
    { port: 0 },
    { port, expiresIn: 0 },
    { port, expiresIn: 604_801 },
    { port, more: 1 },
  ])
    expect([wrong, await make('box', wrong)]).toEqual([wrong, 400]);
  for (const path of ['//evil.test', '/\\evil.test', 'x', '/a b', '/a\nb'])
    expect(await make('box', { port, path })).toBe(400);
  for (const id of ['box', 'Box']) await gateway.call(`DELETE /sandboxes/${id}`);
});

test('with --require-key, a link, a cookie and the token open a preview without a key', async () => {
  const closed = await owned(startGateway({ args: ['--require-key', `--domain=${DOMAIN}`] }));
  const { body: made } = await closed.register('box', 1, { timeout: 600, allowPublicTraffic: false });
  const { body } = await closed.call('POST /sandboxes/box/previews', { port });
  const host = { host: `${port}-box.${DOMAIN}` };
  const status = async (path: string, headers: object, to = host) =>
    (await ask(closed.port, path, { ...to, ...headers })).status;
  const opened = await ask(closed.port, new URL(body.url).search.replace(/^/, '/'), host);
  expect(opened.status).toBe(303);
  const token = { 'svc-traffic-access-token': made.trafficAccessToken };
  expect(await status('/', {})).toBe(401);
  expect(await status('/', { cookie: 'svc-preview=1.a' })).toBe(401);
  expect(await status('/', { cookie: cookieOf(opened) })).toBe(200);
  expect(await status('/', token)).toBe(200);
  // The token opens no daemon, and tells nothing of other sandboxes.
  expect(await status('/envs', token, { host: `49983-box.${DOMAIN}` })).toBe(401);
  expect(await status('/', token, { host: `${port}-none.${DOMAIN}` })).toBe(401);
});

test('links are opened behind nginx, too', async () => {
  const plain = await owned(startGateway({ args: [`--domain=${DOMAIN}`] }));
  const nginx = await owned(startNginx(plain.port));
  const { body: made } = await plain.register('box', 1, { timeout: 600, allowPublicTraffic: false });
  const { body } = await plain.call('POST /sandboxes/box/previews', { port, path: '/a/b?c=d' });
  const host = { host: `${port}-box.${DOMAIN}` };
  const { pathname, search } = new URL(body.url);
  const opened = await ask(nginx.port, `${pathname}${search}`, host);
  expect([opened.status, opened.headers.location]).toEqual([303, '/a/b?c=d']);
  const { status, text } = await ask(nginx.port, '/a/b?c=d', {
    ...host,
    cookie: `mine=1; ${cookieOf(opened)}`,
  });
  expect([status, told(text).url, told(text).headers.cookie]).toEqual([200, '/a/b?c=d', 'mine=1']);
  const byToken = await ask(nginx.port, '/a/b', {
    ...host,
    'svc-traffic-access-token': made.trafficAccessToken,
  });
  expect([byToken.status, byToken.text]).toEqual([200, expect.not.stringContaining(made.trafficAccessToken)]);
  expect((await ask(nginx.port, '/a/b', host)).status).toBe(403);
});

// biome-ignore lint/suspicious/noTemplateCurlyInString: the gateway replaces it
const MASK = 'localhost:${PORT}';

test('a server that accepts one host only gets that, and the origin of its own pages', async () => {
  const sandbox = await Sandbox.create({ ...options(), network: { maskRequestHost: MASK } });
  onTestFinished(async () => void (await sandbox.kill()));
  const host = hostOf(sandbox);
  const named = { 'e2b-sandbox-id': sandbox.sandboxId, 'e2b-sandbox-port': port, host: 'gateway.test' };
  for (const [sent, own] of [
    [{ host }, `https://${host}`],
    [named, 'http://gateway.test'],
  ] as const) {
    const headers = async (origin: string) =>
      told((await ask(gateway.port, '/', { ...sent, origin })).text).headers;
    expect(await headers(own)).toMatchObject({
      ...{ host: `localhost:${port}`, origin: `http://localhost:${port}`, 'x-forwarded-host': sent.host },
    });
    // A server that looks at origins still sees that another page asks.
    expect(await headers('https://evil.test')).toMatchObject({ origin: 'https://evil.test' });
  }
  const upgrade = ['GET / HTTP/1.1', `host: ${host}`, 'connection: upgrade', 'upgrade: websocket'];
  expect(await exchange(gateway.port, message(upgrade))).toContain(`"host":"localhost:${port}"`);
  // The daemon is not a server of the sandbox.
  expect((await sandbox.commands.run('echo here')).stdout).toBe('here\n');
  expect((await gateway.call(`GET /sandboxes/${sandbox.sandboxId}`)).body.network).toEqual({
    maskRequestHost: MASK,
  });
  const { status } = await gateway.call('POST /v2/sandboxes', {
    ...{ templateID: 'base', network: { maskRequestHost: 'a\r\nb' } },
  });
  expect(status).toBe(400);
});
