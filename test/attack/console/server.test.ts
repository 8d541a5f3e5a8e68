import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, request } from 'node:http';
import { type AddressInfo, createServer as listenTcp } from 'node:net';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { buildPage, openSession, startConsole, type TestConsole } from '../../support/programs/console.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { API_KEY, startGateway } from '../../support/programs/gateway.ts';
import { owned } from '../../support/programs/owned.ts';
import { init } from '../../support/programs/sandbox.ts';

/* What a hostile page, another user of the machine, and a hostile daemon try with the server of the console. */

const TOKEN = 'the-token-that-no-browser-may-see';
let daemon: TestDaemon;
let served: TestConsole;
let session: string;
let streams: readonly string[];

beforeAll(async () => {
  buildPage();
  daemon = await startDaemon();
  await init(daemon, { accessToken: TOKEN, defaultUser: 'root' });
  served = await startConsole(daemon.url, [], { env: { ENVCTL_TOKEN: TOKEN } });
  ({ session, streams } = await openSession(served));
});
afterAll(async () => {
  for (const each of [served, daemon]) await each?.[Symbol.asyncDispose]();
});

interface Told {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

/** A request with exactly these headers, beside Host and the length. */
async function ask(
  operation: string,
  headers: Readonly<Record<string, string>> = {},
  body = '',
  origin = served.origin,
): Promise<Told> {
  const [method = '', path = ''] = operation.split(' ');
  const { hostname, port, host } = new URL(origin);
  // Each on a connection of its own, with a body only where one is expected.
  const length = method === 'GET' ? {} : { 'content-length': String(Buffer.byteLength(body)) };
  const all = { host, ...length, ...headers };
  const sent = request({ hostname, port, method, path, headers: all, setHost: false, agent: false });
  sent.end(method === 'GET' ? '' : body);
  const [response] = await once(sent, 'response');
  return { status: response.statusCode, headers: response.headers, body: await text(response) };
}

const own = () => ({ 'x-console-session': session, origin: served.origin });
const LIST = 'POST /daemon/process.Process/List';
const JSON_TYPE = { 'content-type': 'application/json' };

test('with a session, calls are passed on, with a token that the browser never gets', async () => {
  const listed = await ask(LIST, { ...own(), ...JSON_TYPE }, '{}');
  expect(listed).toMatchObject({ status: 200, body: '{}' });
  const about = await ask('GET /about', { 'x-console-session': session });
  for (const { body, headers } of [listed, about])
    expect(JSON.stringify([body, headers])).not.toContain(TOKEN);
});

describe('without a session', () => {
  test.each([
    LIST,
    'GET /daemon/health',
    'GET /about',
    'POST /links',
    'POST /tickets',
    'GET /gateway/sandboxes',
  ])('%s is refused', async (operation) => {
    for (const value of [undefined, '', 'x', served.secret, TOKEN]) {
      const headers = { origin: served.origin, ...(value !== undefined && { 'x-console-session': value }) };
      expect((await ask(operation, headers)).status).toBe(401);
    }
  });

  test('a link works once, and only its own secret opens a session', async () => {
    for (const secret of [served.secret, '', 'x'.repeat(43), session])
      expect((await ask('POST /session', { origin: served.origin }, JSON.stringify({ secret }))).status).toBe(
        401,
      );
    for (const body of ['', 'null', '[]', '{"secret":{}}', '{"secret":null}', `"${'x'.repeat(1e6)}"`])
      expect((await ask('POST /session', { origin: served.origin }, body)).status).toBe(401);
  });

  test('a new link of a session works once, too', async () => {
    const { secret } = JSON.parse((await ask('POST /links', own())).body);
    const exchange = () => ask('POST /session', { origin: served.origin }, JSON.stringify({ secret }));
    const [one, other] = await Promise.all([exchange(), exchange()]);
    expect([one.status, other.status].sort()).toEqual([200, 401]);
  });
});

describe('a hostile page', () => {
  test.each(['evil.example', 'localhost', '127.0.0.1', '127.0.0.1:1', '[::1]', ''])(
    'that had its name bound to this address, %j, gets nothing',
    async (name) => {
      const { port } = new URL(served.origin);
      const host = name === '' || name.includes(':1') ? name : `${name}:${port}`;
      if (host === `127.0.0.1:${port}`) return expect((await ask('GET /', { host })).status).toBe(200);
      for (const operation of ['GET /', LIST, 'POST /session'])
        expect([400, 403]).toContain((await ask(operation, { ...own(), host }, '{}')).status);
    },
  );

  test.each(['http://evil.example', 'null', 'https://127.0.0.1', 'http://127.0.0.1:1', 'http://localhost'])(
    'of the origin %s is refused, even with a session',
    async (origin) => {
      for (const operation of [LIST, 'POST /session', 'GET /about', 'POST /links', 'GET /'])
        expect((await ask(operation, { ...own(), origin }, '{}')).status).toBe(403);
    },
  );

  test('cannot leave Origin out, nor say that it is another site', async () => {
    const plain = { 'x-console-session': session };
    expect((await ask(LIST, plain, '{}')).status).toBe(403);
    for (const site of ['cross-site', 'same-site'])
      expect((await ask('GET /about', { ...plain, 'sec-fetch-site': site })).status).toBe(403);
    expect((await ask('GET /about', { ...plain, 'sec-fetch-site': 'same-origin' })).status).toBe(200);
  });

  test('gets no permission by a preflight', async () => {
    const asked = {
      'access-control-request-method': 'POST',
      'access-control-request-headers': 'x-console-session',
    };
    for (const origin of [served.origin, ...streams])
      for (const from of ['http://evil.example', 'null', 'http://127.0.0.1:1']) {
        const { status, headers } = await ask(
          'OPTIONS /daemon/process.Process/List',
          { ...asked, origin: from },
          '',
          origin,
        );
        expect(status).toBe(403);
        expect(headers['access-control-allow-origin']).toBeUndefined();
      }
  });

  test('cannot frame the page, and the page can run and load nothing of others', async () => {
    const { headers } = await ask('GET /');
    const policy = String(headers['content-security-policy']);
    for (const rule of [
      "default-src 'none'",
      "script-src 'self';",
      "frame-ancestors 'none'",
      "base-uri 'none'",
    ])
      expect(policy).toContain(rule);
    expect(policy).not.toMatch(/script-src[^;]*(unsafe|\*|https?:)/);
    expect(headers).toMatchObject({
      'x-frame-options': 'DENY',
      'referrer-policy': 'no-referrer',
      'cache-control': 'no-store',
    });
    expect(headers['set-cookie']).toBeUndefined();
  });
});

describe('the ports for streams', () => {
  test('serve the page alone, with its session, and no page of their own', async () => {
    for (const origin of streams) {
      expect((await ask('GET /', {}, '', origin)).status).toBe(403);
      expect((await ask('GET /', own(), '', origin)).status).toBe(404);
      for (const operation of ['POST /links', 'GET /about', 'POST /session', 'POST /tickets'])
        expect([401, 404]).toContain((await ask(operation, own(), '{}', origin)).status);
      expect((await ask(LIST, { ...own(), 'x-console-session': 'x' }, '{}', origin)).status).toBe(401);
      expect(
        (await ask(LIST, { ...own(), ...JSON_TYPE, host: new URL(served.origin).host }, '{}', origin)).status,
      ).toBe(403);
      expect((await ask(LIST, { ...own(), ...JSON_TYPE }, '{}', origin)).status).toBe(200);
    }
  });
});

describe('with a session', () => {
  test.each([
    ...['POST /daemon/init', 'POST /daemon/upgrade', 'POST /daemon/freeze', 'POST /daemon/collapse'],
    ...['GET /daemon/envs', 'DELETE /daemon/files?path=/etc', 'GET /daemon/../about', 'GET /daemon//health'],
    ...['GET /daemon/health/', 'GET /daemon/%68ealth', 'POST /daemon/process.Process/../init', 'POST /exec'],
    ...['PUT /daemon/files?path=/x', 'POST /daemon/process.Process/StreamInput', 'GET /../../etc/passwd'],
    ...['GET /gateway/sandboxes/box', 'POST /gateway/sandboxes', 'GET /gateway/sandboxes/box/metrics'],
    ...['POST /gateway/v2/sandboxes/', 'GET /gateway/v2/sandboxes', 'DELETE /gateway/sandboxes'],
    ...['POST /gateway/templates', 'GET /gateway/sandboxes/box/previews', 'DELETE /gateway/sandboxes/'],
  ])('%s is no operation of the page', async (operation) => {
    expect((await ask(operation, own(), '{}')).status).toBe(404);
  });

  test('headers of the request that are not known do not reach the daemon', async () => {
    const seen: IncomingHttpHeaders[] = [];
    const server = createServer((incoming, response) => {
      seen.push(incoming.headers);
      response
        .setHeader('set-cookie', 'a=b')
        .setHeader('clear-site-data', '"*"')
        .setHeader('refresh', '0; url=/');
      response.setHeader('content-type', 'text/html').setHeader('service-worker-allowed', '/');
      response.setHeader('content-security-policy', 'script-src *').end('<script>alert(1)</script>');
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    await owned(Promise.resolve({ [Symbol.asyncDispose]: async () => void server.close() }));
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const hostile = await owned(startConsole(url, [], { env: { ENVCTL_TOKEN: TOKEN } }));
    const opened = await openSession(hostile);
    const { headers } = await ask(
      'GET /daemon/files?path=/x',
      {
        'x-console-session': opened.session,
        cookie: 'c=d',
        'x-access-token': 'mine',
        authorization: 'Bearer x',
        via: 'x',
      },
      '',
      hostile.origin,
    );
    expect(seen[0]).toMatchObject({ 'x-access-token': TOKEN });
    for (const name of ['cookie', 'authorization', 'via', 'x-console-session', 'origin'])
      expect(seen[0]).not.toHaveProperty(name);
    for (const name of ['set-cookie', 'clear-site-data', 'refresh', 'service-worker-allowed'])
      expect(headers).not.toHaveProperty(name);
    // What a daemon sends is never a page of the console.
    expect(headers).toMatchObject({
      'content-disposition': 'attachment',
      'content-security-policy': "sandbox; default-src 'none'",
      'x-content-type-options': 'nosniff',
    });
  });

  test('a download is a link that works once, is not a page, and names no other operation', async () => {
    const order = async (body: object) =>
      ask('POST /tickets', { ...own(), ...JSON_TYPE }, JSON.stringify(body));
    const { ticket } = JSON.parse((await order({ path: '/etc/hostname' })).body);
    const first = await ask(`GET /download/${ticket}`);
    expect(first).toMatchObject({ status: 200 });
    expect(first.headers['content-disposition']).toMatch(/^attachment;/);
    expect(first.headers['content-security-policy']).toMatch(/^sandbox/);
    expect((await ask(`GET /download/${ticket}`)).status).toBe(404);
    for (const body of [
      {},
      { path: 1 },
      { path: 'x'.repeat(6000) },
      { path: '/', format: {} },
      { path: '/', sandbox: 1 },
    ])
      expect((await order(body)).status).toBe(400);
    expect((await order({ path: '/etc/hostname', sandbox: 'other' })).status).toBe(200);
  });

  test('a download of a foreign page is refused before the ticket is used', async () => {
    const body = JSON.stringify({ path: '/etc/hostname' });
    const { ticket } = JSON.parse((await ask('POST /tickets', { ...own(), ...JSON_TYPE }, body)).body);
    expect((await ask(`GET /download/${ticket}`, { 'sec-fetch-site': 'cross-site' })).status).toBe(403);
    expect((await ask(`GET /download/${ticket}`, { 'sec-fetch-site': 'same-origin' })).status).toBe(200);
  });

  test('names of users and sandboxes that are no names are errors, and the console goes on', async () => {
    for (const headers of [
      { 'x-console-user': '%' },
      { 'x-console-sandbox': '%ff' },
      { 'x-console-sandbox': 'other' },
    ])
      expect((await ask(LIST, { ...own(), ...JSON_TYPE, ...headers }, '{}')).status).toBeGreaterThanOrEqual(
        400,
      );
    expect((await ask('GET /about', { 'x-console-session': session })).status).toBe(200);
  });
});

test.each([
  ...['HTTP/1.1 099 X\r\n\r\n', 'HTTP/1.1 999 X\r\nContent-Length: 0\r\n\r\n', 'garbage', ''],
  ...[
    'HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nshort',
    'HTTP/1.1 101 X\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n',
  ],
  ...[
    'HTTP/1.1 200 OK\r\nETag: \xff\x80\r\nContent-Disposition: \xff; filename="\xfe"\r\nContent-Length: 0\r\n\r\n',
  ],
  `HTTP/1.1 200 OK\r\nX: ${'x'.repeat(100_000)}\r\n\r\n`,
])('an answer that is none, %j, does not end the console', async (answer) => {
  const server = listenTcp((socket) => {
    socket.on('error', () => {});
    socket.once('data', () => socket.end(answer, 'latin1'));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  await owned(Promise.resolve({ [Symbol.asyncDispose]: async () => void server.close() }));
  const console = await owned(startConsole(`http://127.0.0.1:${(server.address() as AddressInfo).port}`));
  const opened = await openSession(console);
  const headers = { 'x-console-session': opened.session, origin: console.origin };
  for (const operation of ['GET /daemon/files?path=/x', 'POST /daemon/process.Process/List'])
    await ask(operation, headers, '{}', console.origin).catch(() => {});
  const body = JSON.stringify({ path: '/x' });
  const { ticket } = JSON.parse((await ask('POST /tickets', headers, body, console.origin)).body);
  await ask(`GET /download/${ticket}`, {}, '', console.origin).catch(() => {});
  expect((await ask('GET /about', headers, '', console.origin)).status).toBe(200);
});

test('through a gateway the key and the tokens of its sandboxes stay here', async () => {
  const gateway = await owned(startGateway());
  await gateway.register('box', daemon.port, { envdAccessToken: TOKEN });
  const env = { ENVCTL_GATEWAY: gateway.url, ENVCTL_API_KEY: API_KEY };
  const console = await owned(startConsole('', [], { env }));
  const opened = await openSession(console);
  const headers = { 'x-console-session': opened.session, origin: console.origin, ...JSON_TYPE };
  const list = await ask('GET /gateway/sandboxes', headers, '', console.origin);
  expect(list).toMatchObject({ status: 200 });
  const inBox = { ...headers, 'x-console-sandbox': 'box' };
  const called = await ask(LIST, inBox, '{}', console.origin);
  expect(called).toMatchObject({ status: 200, body: '{}' });
  const about = await ask('GET /about', headers, '', console.origin);
  for (const told of [list, called, about]) {
    expect(JSON.stringify(told)).not.toContain(TOKEN);
    expect(JSON.stringify(told)).not.toContain(API_KEY);
  }
  expect((await ask('GET /gateway/sandboxes/box', headers, '', console.origin)).status).toBe(404);
  const none = await ask(LIST, { ...headers, 'x-console-sandbox': 'none' }, '{}', console.origin);
  expect(none.status).toBeGreaterThanOrEqual(400);
});

test('the answer of a gateway to a change, which may have tokens, stays here; an error goes on', async () => {
  const gateway = createServer((request, response) => {
    const status = request.url?.includes('/gone/') ? 404 : 201;
    const told = { message: 'told', sandboxID: 'box', url: 'http://box/', envdAccessToken: TOKEN };
    response.writeHead(status, JSON_TYPE).end(request.url?.includes('/odd/') ? '[' : JSON.stringify(told));
  }).listen(0, '127.0.0.1');
  await once(gateway, 'listening');
  await owned(Promise.resolve({ [Symbol.asyncDispose]: async () => void gateway.close() }));
  const url = `http://127.0.0.1:${(gateway.address() as AddressInfo).port}`;
  const env = { ENVCTL_GATEWAY: url, ENVCTL_API_KEY: API_KEY };
  const console = await owned(startConsole('', [], { env }));
  const opened = await openSession(console);
  const headers = { 'x-console-session': opened.session, origin: console.origin, ...JSON_TYPE };
  const change = (path: string) => ask(`POST /gateway/sandboxes/${path}`, headers, '{}', console.origin);
  expect(await change('box/resume')).toMatchObject({ status: 204, body: '' });
  expect(await change('box/timeout')).toMatchObject({ status: 204, body: '' });
  expect(await change('box/previews')).toMatchObject({ status: 200, body: '{"url":"http://box/"}' });
  expect(await change('odd/previews')).toMatchObject({ status: 200, body: '{}' });
  const created = await ask('POST /gateway/v2/sandboxes', headers, '{}', console.origin);
  expect(created).toMatchObject({ status: 200, body: '{"sandboxID":"box"}' });
  expect(created.headers['content-security-policy']).toContain('sandbox');
  const gone = await change('gone/resume');
  expect(gone.status).toBe(404);
  expect(gone.body).toContain('told');
});

test('it listens on 127.0.0.1 alone', async () => {
  const { port } = new URL(served.origin);
  for (const address of ['[::1]', '127.0.0.2'])
    await expect(fetch(`http://${address}:${port}/`)).rejects.toThrow();
});

test.each(['x', '', '[\r\n0\r\n'])(
  'an answer of a gateway that breaks off with %j in the middle does not end the console',
  async (rest) => {
    const server = listenTcp((socket) => {
      socket.on('error', () => {});
      const head = 'HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n';
      socket.once('data', () =>
        socket.write(head, () => (rest ? socket.end(rest) : socket.resetAndDestroy())),
      );
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    await owned(Promise.resolve({ [Symbol.asyncDispose]: async () => void server.close() }));
    const env = { ENVCTL_GATEWAY: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
    const console = await owned(startConsole('', [], { env }));
    const opened = await openSession(console);
    const headers = { 'x-console-session': opened.session, origin: console.origin, ...JSON_TYPE };
    const created = await ask('POST /gateway/v2/sandboxes', headers, '{}', console.origin).catch(() => null);
    expect(created?.status).not.toBe(200);
    expect((await ask('GET /about', headers, '', console.origin)).status).toBe(200);
  },
);
