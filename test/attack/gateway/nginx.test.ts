import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, request, type Server } from 'node:http';
import { connect as connectHttp2 } from 'node:http2';
import { type AddressInfo, connect } from 'node:net';
import { Readable } from 'node:stream';
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { API_KEY, startGateway, type TestGateway, toSandbox } from '../../support/programs/gateway.ts';
import { exchange, message, startRawSandbox } from '../../support/programs/raw-sandbox.ts';
import { freePort } from '../../support/servers/free-port.ts';
import { type Nginx, startNginx } from '../../support/servers/nginx.ts';
import { until } from '../../support/until.ts';

let gateway: TestGateway;
let nginx: Nginx;
let http2: number;
let server: Server;
let seen: IncomingMessage[];
const hanging: { ended: number } = { ended: 0 };

describe('nginx', () => {
  beforeAll(async () => {
    gateway = await startGateway();
    http2 = await freePort();
    nginx = await startNginx(gateway.port, { http2 });
    server = createServer((incoming, response) => {
      seen.push(incoming);
      if (incoming.url === '/hang') {
        response.once('close', () => hanging.ended++);
        response.write('begun');
      } else if (incoming.url === '/digest') {
        const hash = createHash('sha256');
        incoming.on('data', (piece) => hash.update(piece)).on('end', () => response.end(hash.digest('hex')));
      } else incoming.pipe(response);
    });
    server.on('upgrade', (_incoming, socket) => {
      socket.write('HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n');
      socket.pipe(socket);
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    await gateway.register('one', (server.address() as AddressInfo).port, { timeout: 3600 });
  });

  beforeEach(() => {
    seen = [];
  });

  afterAll(async () => {
    server.closeAllConnections();
    server.close();
    for (const each of [nginx, gateway]) await each[Symbol.asyncDispose]();
  });

  const url = (path = '/') => `http://127.0.0.1:${nginx.port}${path}`;
  const head = (target: string, ...lines: readonly string[]) =>
    message([`POST ${target} HTTP/1.1`, 'host: a', 'svc-sandbox-id: one', 'connection: close', ...lines]);

  test('a request goes to the sandbox, with its headers and without the key of the platform', async () => {
    const body = 'hello';
    const headers = { ...toSandbox('one'), 'x-metadata-a_b': '1', 'x-api-key': 'of the sandbox' };
    const response = await fetch(url('/a%20b//c?d=%2e'), { method: 'POST', headers, body });
    expect([response.status, await response.text()]).toEqual([200, body]);
    expect(seen[0]?.url).toBe('/a%20b//c?d=%2e');
    expect(seen[0]?.headers).toMatchObject({
      ...{ 'x-metadata-a_b': '1', 'x-api-key': 'of the sandbox', via: expect.stringMatching(/^1\.1 envd-/) },
      host: `127.0.0.1:${nginx.port}`,
    });
    await fetch(url(), { headers: { ...toSandbox('one'), 'x-api-key': API_KEY } });
    expect(seen[1]?.headers).not.toHaveProperty('x-api-key');
  });

  test('what is refused has the status and the body of the contract', async () => {
    const answers = [
      [{}, 400],
      [toSandbox('a/b'), 400],
      [toSandbox('unknown'), 502],
      [toSandbox('one', 70_000), 400],
    ] as const;
    for (const [headers, code] of answers) {
      const response = await fetch(url(), { headers });
      expect(response.status).toBe(code);
      expect(await response.json()).toMatchObject({ code, message: expect.any(String) });
    }
    const looped = await exchange(nginx.port, head('/', `via: ${(await lastVia()) ?? ''}`));
    expect(looped).toMatch(/^HTTP\/1\.1 508 /);
  });

  async function lastVia(): Promise<string | undefined> {
    await fetch(url(), { headers: toSandbox('one') });
    return seen.at(-1)?.headers.via;
  }

  test('platform operations are reached through nginx, with the key', async () => {
    expect((await fetch(url('/gateway/health'))).status).toBe(204);
    expect((await fetch(url('/sandboxes'))).status).toBe(401);
    const listed = await fetch(url('/sandboxes'), { headers: { 'x-api-key': API_KEY } });
    expect(await listed.json()).toHaveLength(1);
  });

  test.each([
    ...['/init', '/init?a', '/init/', '//init', '/./init', '/a/../init', '/%69nit', '/%2569nit', '/INIT'],
    ...[
      '/%2finit',
      '/a/%2e%2e/init',
      '/\\init',
      '/init;a=b',
      '/init%00',
      '/init%20',
      '/init#a',
      '/a//../init',
    ],
    ...[
      '/a/..%2finit',
      '/%5cinit',
      '/x/..;/init',
      'http://a/init',
      'http://a//init?x',
      '/.envd-head-too-large/../init',
    ],
    ...['/freeze', '/unfreeze', '/collapse', '/fsfreeze', '/fsthaw', '/upgrade'],
  ])('%s is closed behind nginx, too', async (target) => {
    expect(await exchange(nginx.port, head(target, 'content-length: 0'))).toMatch(/^HTTP\/1\.1 40[03] /);
    expect(seen).toHaveLength(0);
    const allowed = head(target, 'content-length: 0', `x-api-key: ${API_KEY}`);
    expect(await exchange(nginx.port, allowed)).toMatch(/^HTTP\/1\.1 (200|400) /);
  });

  test('HTTP/2 is carried', async () => {
    const session = connectHttp2(`http://127.0.0.1:${http2}`);
    onTestFinished(() => session.close());
    for (let count = 0; count < 5; count++) {
      const stream = session.request({ ':method': 'POST', ':path': '/a/b', ...toSandbox('one') });
      stream.end('hello');
      expect(String(Buffer.concat(await stream.toArray()))).toBe('hello');
    }
    expect(seen).toHaveLength(5);
  });

  test('what is in the body of a request is none, whatever its method', async () => {
    const hidden = 'GET /hidden HTTP/1.1\r\nhost: a\r\nsvc-sandbox-id: one\r\n\r\n';
    for (const id of ['one', 'unknown', 'one']) {
      for (const method of ['HEAD', 'GET', 'POST']) {
        const lines = [`${method} /a/c HTTP/1.1`, 'host: a', `svc-sandbox-id: ${id}`, 'connection: close'];
        await exchange(nginx.port, `${message([...lines, `content-length: ${hidden.length}`])}${hidden}`);
      }
    }
    expect(seen.map((each) => each.url)).toEqual(Array(6).fill('/a/c'));
  });

  test('an upload of 1 GiB arrives, and is not kept by nginx', async () => {
    const [piece, count] = [Buffer.alloc(1024 ** 2, 'a'), 1024];
    const expected = createHash('sha256');
    for (let index = 0; index < count; index++) expected.update(piece);
    const pieces = Readable.from(
      (function* () {
        for (let index = 0; index < count; index++) yield piece;
      })(),
    );
    const outgoing = request(url('/digest'), { method: 'POST', headers: toSandbox('one') });
    pieces.pipe(outgoing);
    const [response] = (await once(outgoing, 'response')) as [IncomingMessage];
    expect(String(await response.toArray())).toBe(expected.digest('hex'));
  });

  test('a WebSocket is carried', async () => {
    const socket = connect(nginx.port, '127.0.0.1');
    const lines = ['host: a', 'svc-sandbox-id: one', 'connection: Upgrade', 'upgrade: websocket'];
    socket.write(message(['GET /socket HTTP/1.1', ...lines]));
    expect(String((await once(socket, 'data'))[0])).toMatch(/^HTTP\/1\.1 101 /);
    socket.write('ping');
    expect(String((await once(socket, 'data'))[0])).toBe('ping');
    socket.destroy();
  });

  test('an abort of the client is an abort at the sandbox', async () => {
    const before = hanging.ended;
    const abort = new AbortController();
    const response = await fetch(url('/hang'), { headers: toSandbox('one'), signal: abort.signal });
    expect(response.status).toBe(200);
    abort.abort();
    await until('the sandbox has seen it', () => hanging.ended > before);
  });

  test('a stream of a sandbox that expires ends, and the next request is refused', async () => {
    const frozen = JSON.stringify({ notFrozen: 0, failed: 0, unobservable: 0 });
    const daemon = await startRawSandbox((socket, text) => {
      if (text.includes('/stream')) socket.write('HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nbegun');
      else socket.end(`HTTP/1.1 200 OK\r\ncontent-length: ${frozen.length}\r\n\r\n${frozen}`);
    });
    onTestFinished(() => daemon[Symbol.asyncDispose]());
    await gateway.register('brief', daemon.port, { timeout: 3600 });
    const stream = await fetch(url('/stream'), { headers: toSandbox('brief') });
    const ended = stream.text().catch(() => 'ended');
    await gateway.call('POST /sandboxes/brief/timeout', { timeout: 0 });
    expect((await fetch(url(), { headers: toSandbox('brief') })).status).toBe(502);
    expect(await ended).toBe('ended');
  });
});
