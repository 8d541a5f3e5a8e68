import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { createServer, request, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ask, cookieOf, type HostAnswer } from '../../support/clients/by-host.ts';
import { closing } from '../../support/clients/closing.ts';
import { startAgent } from '../../support/programs/agent.ts';
import { API_KEY, startGateway, type TestGateway } from '../../support/programs/gateway.ts';
import { owned } from '../../support/programs/owned.ts';
import { phase } from '../../support/servers/hook.ts';
import { startNginx } from '../../support/servers/nginx.ts';
import { until } from '../../support/until.ts';

const DOMAIN = 'sandboxes.test';
let gateway: TestGateway;
let server: Server;
let port: number;
/** What reached the service in the sandbox: its URL and headers. */
let seen: string[];

beforeAll(async () => {
  gateway = await startGateway({ args: [`--domain=${DOMAIN}`, '--hook=true', '--resume-hook=true'] });
  server = createServer((incoming, response) => {
    seen.push(`${incoming.url} ${incoming.rawHeaders.join(' ')}`);
    response.end('here');
  });
  server.on('upgrade', (incoming, socket) => {
    seen.push(`${incoming.url} ${incoming.rawHeaders.join(' ')}`);
    socket.write('HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n');
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  port = (server.address() as AddressInfo).port;
});

afterAll(async () => {
  server.closeAllConnections();
  server.close();
  await gateway[Symbol.asyncDispose]();
});

/** A private sandbox: its token, and the pass of a link. */
async function make(id: string, { expiresIn = 600, on = gateway } = {}) {
  seen = [];
  const { body } = await on.register(id, 1, { timeout: 600, allowPublicTraffic: false });
  return { token: String(body.trafficAccessToken), pass: await link(id, port, { expiresIn, on }) };
}

/** The pass of a further link, by the token that the sandbox has. */
async function link(id: string, to: number, { expiresIn = 600, on = gateway } = {}): Promise<string> {
  const { body } = await on.call(`POST /sandboxes/${id}/previews`, { port: to, expiresIn });
  return new URL(body.url).searchParams.get('svc-preview') ?? '';
}

const hostOf = (id: string, of = port) => ({ host: `${of}-${id}.${DOMAIN}` });
const withLink = (pass: string, path = '/') => `${path}?svc-preview=${pass}`;
const withCookie = (pass: string) => ({ cookie: `svc-preview=${pass}` });
const status = async (answer: Promise<HostAnswer>) => (await answer).status;

test('a pass counts for its sandbox, its port and its time only', async () => {
  const { pass: earlier } = await make('one');
  const { pass: other } = await make('two');
  const { pass, token } = await make('one');
  const otherPort = await link('one', port + 1);
  const [expires, signature] = pass.split('.');
  const own = (by: string) =>
    createHmac('sha256', by).update(`preview:${port}:9999999999`).digest('base64url');
  const wrong = [
    ...[
      earlier,
      other,
      otherPort,
      '',
      'x',
      expires,
      signature,
      `9999999999.${signature}`,
      `${expires}.`,
      `.${signature}`,
    ],
    ...[
      `0${pass}`,
      `${pass}=`,

      `9999999999.${own('')}`,
      `9999999999.${own('null')}`,
      `1e12.${signature}`,
    ],
    ...[pass.toUpperCase(), encodeURIComponent(`${pass}\0`), token],
  ];
  for (const each of wrong) {
    expect([each, await status(ask(gateway.port, withLink(each ?? ''), hostOf('one')))]).toEqual([each, 403]);
    expect([
      each,
      await status(ask(gateway.port, '/', { ...hostOf('one'), ...withCookie(each ?? '') })),
    ]).toEqual([each, 403]);
    expect(
      await status(
        ask(gateway.port, '/', {
          ...hostOf('one'),
          'svc-traffic-access-token': each === token ? pass : (each ?? ''),
        }),
      ),
    ).toBe(403);
  }
  expect(seen).toEqual([]);
  expect(await status(ask(gateway.port, withLink(pass), hostOf('one')))).toBe(303);
});

test('a pass that has expired opens nothing, and ends the WebSocket that it has opened', async () => {
  const { pass } = await make('brief', { expiresIn: 2 });
  const upgrade = { connection: 'Upgrade', upgrade: 'websocket', ...hostOf('brief'), ...withCookie(pass) };
  const outgoing = request({ host: '127.0.0.1', port: gateway.port, headers: upgrade }).end();
  const [, socket] = (await once(outgoing, 'upgrade')) as [unknown, Duplex];
  await closing(socket.resume());
  expect(await status(ask(gateway.port, withLink(pass), hostOf('brief')))).toBe(403);
  expect(await status(ask(gateway.port, '/', { ...hostOf('brief'), ...withCookie(pass) }))).toBe(403);
});

test('a new token and a removal end the streams that the old one has opened', async () => {
  for (const change of [() => make('open'), () => gateway.call('DELETE /sandboxes/open')]) {
    const { token } = await make('open');
    const upgrade = {
      connection: 'Upgrade',
      upgrade: 'websocket',
      ...hostOf('open'),
      'svc-traffic-access-token': token,
    };
    const outgoing = request({ host: '127.0.0.1', port: gateway.port, headers: upgrade }).end();
    const [, socket] = (await once(outgoing, 'upgrade')) as [unknown, Duplex];
    socket.resume();
    const closed = once(socket, 'close');
    await change();
    expect(await closed).toEqual([false]);
  }
});

test('a link leads nowhere else', async () => {
  const { pass } = await make('one');
  const leadsTo = async (path: string) => {
    const { headers } = await ask(gateway.port, path, hostOf('one'));
    return new URL(headers.location ?? 'none:', `http://${hostOf('one').host}/x/y`).host;
  };
  for (const path of [
    '//evil.test/',
    '///evil.test',
    '/\\evil.test',
    '//evil.test:80@x/',
    '/.//evil.test',
    '/',
  ])
    expect([path, await leadsTo(withLink(pass, path))]).toEqual([path, hostOf('one').host]);
  expect(await leadsTo(`http://${hostOf('one').host}//evil.test?svc-preview=${pass}`)).toBe(
    hostOf('one').host,
  );
});

test('links count for names only, and for pages only', async () => {
  const { pass } = await make('one');
  const byHeader = { 'svc-sandbox-id': 'one', 'svc-sandbox-port': port };
  const { status: code, headers } = await ask(gateway.port, withLink(pass), byHeader);
  expect([code, headers['set-cookie']]).toEqual([403, undefined]);
  expect(await status(ask(gateway.port, withLink(pass), hostOf('one'), 'POST'))).toBe(403);
  expect(await status(ask(gateway.port, withLink(pass), { ...hostOf('one'), ...byHeader }))).toBe(403);
});

test('a sandbox sees neither its token nor the cookie, however they are sent', async () => {
  const { pass, token } = await make('one');
  const shown = [
    ['svc-traffic-access-token', token, 'Cookie', 'a=1', 'Cookie', `svc-preview=${pass}`],
    ['Cookie', `svc-preview=${pass}`, 'cookie', `b=2;svc-preview=${pass};c=3`],
    ['cookie', `svc-preview = ${pass}`, 'cookie', `svc-preview=${pass}`],
    ['cookie', `svc-preview=x; svc-preview=${pass}`],
  ];
  for (const headers of shown) {
    const raw = ['host', hostOf('one').host, ...headers];
    const outgoing = request({ host: '127.0.0.1', port: gateway.port, headers: raw, agent: false }).end();
    const [response] = await once(outgoing, 'response');
    response.resume();
    expect(response.statusCode).toBe(200);
    expect(seen.at(-1)).not.toContain(pass);
    expect(seen.at(-1)).not.toContain(token);
  }
  const twice = [
    'host',
    hostOf('one').host,
    'svc-traffic-access-token',
    token,
    'svc-traffic-access-token',
    token,
  ];
  const outgoing = request({ host: '127.0.0.1', port: gateway.port, headers: twice, agent: false }).end();
  const [response] = await once(outgoing, 'response');
  response.resume();
  expect(response.statusCode).toBe(403);
});

test('a sandbox sees no pass of a link that is not turned into a cookie, in its URL or in Referer', async () => {
  const { pass, token } = await make('one');
  const page = `http://${hostOf('one').host}/?a=1&svc-preview=${pass}&svc-preview=${pass}&b=?`;
  const path = `/x?svc-preview=${pass}&q=%20&svc-preview=${pass}`;
  const upgrade = { connection: 'Upgrade', upgrade: 'websocket', 'sec-websocket-version': '13' };
  for (const shown of [
    { 'svc-traffic-access-token': token },
    withCookie(pass),
    { 'x-api-key': API_KEY },
    { ...upgrade, ...withCookie(pass) },
  ]) {
    const headers = { ...hostOf('one'), ...shown, referer: page };
    const target = { host: '127.0.0.1', port: gateway.port, path, agent: false };
    const isPage = !('cookie' in shown) || 'upgrade' in shown;
    const outgoing = request({ ...target, headers, method: isPage ? 'GET' : 'POST' });
    outgoing.on('upgrade', (_response, socket) => socket.destroy()).end();
    const reached = seen.length;
    await until('it reaches the service', () => seen.length > reached);
    expect(seen.at(-1)).not.toContain(pass);
    expect(seen.at(-1)).toMatch(/^\/x\?q=%20 /);
    expect(seen.at(-1)).toContain('/?a=1&b=?');
  }
  await ask(gateway.port, '/?', { ...hostOf('one'), ...withCookie(pass) });
  expect(seen.at(-1)).toMatch(/^\/\? /);
});

test("cookies that another sandbox's page has set do not hide the right one, and cost little", async () => {
  const { pass } = await make('one');
  const tossed = Array.from(
    { length: 20 },
    (_, index) => `svc-preview=9999999999.${'a'.repeat(42)}${index % 10}`,
  );
  const cookie = [...tossed, `svc-preview=${pass}`].join('; ');
  expect(await status(ask(gateway.port, '/', { ...hostOf('one'), cookie }))).toBe(200);
});

test('a cookie counts for its own page only, and for what a visitor opens', async () => {
  const { pass } = await make('one');
  const host = hostOf('one');
  const opens = {
    'sec-fetch-site': 'cross-site',
    'sec-fetch-mode': 'navigate',
    'sec-fetch-dest': 'document',
  };
  const of = (headers: Readonly<Record<string, string>>) =>
    status(ask(gateway.port, '/', { ...host, ...withCookie(pass), ...headers }));
  for (const headers of [
    {},
    { origin: `https://${host.host}` },
    { origin: `http://${host.host}`, 'sec-fetch-site': 'same-origin' },
    { 'sec-fetch-site': 'none' },
    opens,
  ])
    expect([headers, await of(headers)]).toEqual([headers, 200]);
  for (const headers of [
    { origin: 'null' },
    { origin: '' },
    { origin: `http://${port}-two.${DOMAIN}` },
    { origin: `http://${host.host}:1` },
    { origin: `http://${host.host}.evil.test` },
    { origin: `http://a@${host.host}` },
    { 'sec-fetch-site': 'same-site' },
    { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'navigate' },
    { 'sec-fetch-site': 'same-origin, cross-site' },
    { ...opens, 'sec-fetch-dest': 'iframe' },
    { ...opens, 'sec-fetch-mode': 'no-cors' },
    { ...opens, origin: `http://${port}-two.${DOMAIN}` },
  ])
    expect([headers, await of(headers)]).toEqual([headers, 403]);
});

test('who may not reach the daemon of a private sandbox does not wake it, and who may does', async () => {
  const agent = await owned(startAgent());
  const envdAccessToken = 'the token of the daemon';
  const { body } = await gateway.register('asleep-2', agent.port, {
    ...{ timeout: 0, allowPublicTraffic: false, envdAccessToken },
  });
  const state = async () => (await gateway.call('GET /sandboxes/asleep-2')).body.phase;
  await phase(gateway, 'asleep-2', 'paused');
  for (const [id, headers] of [
    ['asleep-2', {}],
    ['asleep-2', { 'x-access-token': 'wrong' }],
    ['asleep-2', { 'svc-traffic-access-token': 'wrong' }],
    ['asleep-2', { 'x-api-key': 'wrong' }],
  ] as const) {
    const refused = await ask(gateway.port, '/health', { ...hostOf(id, 49983), ...headers });
    expect([refused.status, JSON.parse(refused.text).message]).toEqual([502, "sandbox 'asleep-2' is paused"]);
    expect(await state()).toBe('paused');
  }
  for (const headers of [
    { 'x-access-token': envdAccessToken },
    { 'svc-traffic-access-token': String(body.trafficAccessToken) },
    { 'x-api-key': API_KEY },
  ]) {
    expect((await ask(gateway.port, '/health', { ...hostOf('asleep-2', 49983), ...headers })).status).toBe(
      200,
    );
    expect(await state()).toBe('running');
    await gateway.call('POST /sandboxes/asleep-2/timeout', { timeout: 0 });
    await phase(gateway, 'asleep-2', 'paused');
  }
});

test('who may not reach a private port does not wake its sandbox', async () => {
  const agent = await owned(startAgent());
  await gateway.register('asleep', agent.port, { timeout: 0, allowPublicTraffic: false });
  await phase(gateway, 'asleep', 'paused');
  const paused = agent.asked.length;
  expect(await status(ask(gateway.port, '/', hostOf('asleep')))).toBe(403);
  expect(await status(ask(gateway.port, '/', { ...hostOf('asleep'), ...withCookie('1.a') }))).toBe(403);
  expect((await gateway.call('GET /sandboxes/asleep')).body.phase).toBe('paused');
  // A resume would have thawed its guest.
  expect(agent.asked.length).toBe(paused);
});

test('behind nginx nobody gets the answer to somebody else, and a change counts at once', async () => {
  const asked = await owned(startGateway({ args: [`--domain=${DOMAIN}`] }));
  const nginx = await owned(startNginx(asked.port));
  const { token, pass } = await make('one', { on: asked });
  const paths = ['/a/b', '/', '/x'];
  for (let turn = 0; turn < 20; turn++) {
    const path = paths[turn % 3] ?? '/';
    const [right, without, wrong] = await Promise.all([
      ask(nginx.port, path, { ...hostOf('one'), 'svc-traffic-access-token': token }),
      ask(nginx.port, path, hostOf('one')),
      ask(nginx.port, path, { ...hostOf('one'), ...withCookie(`${pass}x`) }),
    ]);
    expect([right.status, without.status, wrong.status]).toEqual([200, 403, 403]);
    expect(seen.at(-1)).not.toContain(token);
  }
  const opened = await ask(nginx.port, withLink(pass, '/a/b'), hostOf('one'));
  expect(cookieOf(opened)).toBe(`svc-preview=${pass}`);
  await asked.register('late', 1, { timeout: 600 });
  expect(await status(ask(nginx.port, '/a/b', hostOf('late')))).toBe(200);
  await asked.register('late', 1, { timeout: 600, allowPublicTraffic: false });
  expect(await status(ask(nginx.port, '/a/b', hostOf('late')))).toBe(403);
});
