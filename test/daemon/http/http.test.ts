import { once } from 'node:events';
import { connect } from 'node:net';
import { cors } from '@connectrpc/connect';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { closing } from '../../support/clients/closing.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { until } from '../../support/until.ts';

/* Requests that are refused before any operation sees them, in the format that the client expects. */

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(() => daemon[Symbol.asyncDispose]());

describe('an unsupported method', () => {
  test.each([
    ['POST', '/health', 'GET, HEAD'],
    ['DELETE', '/files?path=/etc/passwd', 'GET, HEAD, POST'],
    ['PUT', '/files', 'GET, HEAD, POST'],
    ['GET', '/files/compose', 'POST'],
    ['GET', '/init', 'POST'],
    ['HEAD', '/freeze', 'POST'],
    ['PATCH', '/metrics', 'GET, HEAD'],
    ['PROPFIND', '/envs', 'GET, HEAD'],
    ['GET', '/process.Process/List', 'POST'],
    ['PUT', '/process.Process/Start', 'POST'],
    ['DELETE', '/filesystem.Filesystem/WatchDir', 'POST'],
  ])('%s %s is 405, and Allow is %s', async (method, path, allowed) => {
    const response = await fetch(daemon.url + path, { method });
    expect(response.status).toBe(405);
    expect(response.headers.get('allow')).toBe(allowed);
    expect(response.headers.get('x-content-type-options')).toBe('nosniff');
    expect(response.headers.get('cache-control')).toBe('no-store');
    if (method === 'HEAD') return;
    const [name] = path.split('?');
    expect(await response.json()).toEqual({
      code: 405,
      message: `method ${method} is not allowed for ${name}: use ${allowed}`,
    });
  });

  test('HEAD has the headers of GET', async () => {
    for (const path of ['/health', '/metrics', '/envs']) {
      const get = await fetch(daemon.url + path);
      const head = await fetch(daemon.url + path, { method: 'HEAD' });
      expect([head.status, await head.text()]).toEqual([get.status, '']);
      expect(head.headers.get('content-type')).toBe(get.headers.get('content-type'));
    }
  });

  test('OPTIONS is 204 with and without an origin', async () => {
    for (const headers of [{}, { origin: 'https://a.example' }]) {
      const response = await fetch(`${daemon.url}/process.Process/List`, { method: 'OPTIONS', headers });
      expect([response.status, await response.text()]).toEqual([204, '']);
    }
  });
});

describe('an unsupported content type of an RPC', () => {
  const UNARY = 'application/json or application/proto';
  const STREAM = 'application/connect+json or application/connect+proto';

  test.each([
    ['/process.Process/List', 'text/plain', UNARY],
    ['/process.Process/List', 'application/connect+json', UNARY],
    ['/process.Process/List', 'nonsense', UNARY],
    ['/filesystem.Filesystem/Stat', '', UNARY],
    ['/filesystem.Filesystem/Stat', 'application/grpc', UNARY],
    ['/filesystem.Filesystem/Stat', 'application/grpc-web-text', UNARY],
    ['/process.Process/Start', 'application/json', STREAM],
    ['/process.Process/StreamInput', 'application/json', STREAM],
    ['/process.Process/Start', 'application/grpc-web-text+proto', STREAM],
    ['/filesystem.Filesystem/WatchDir', 'application/x-www-form-urlencoded', STREAM],
  ])('%s with %j is 415, and Accept-Post is %s', async (path, type, right) => {
    const lines = [`POST ${path} HTTP/1.1`, 'host: a', `content-type: ${type}`, 'content-length: 2'];
    const { head, body } = await exchange(`${lines.join('\r\n')}\r\nconnection: close\r\n\r\n{}`);
    expect(head).toMatch(/^HTTP\/1.1 415 Unsupported Media Type\r\n/);
    expect(head).toMatch(new RegExp(`^accept-post: ${right.split(' ')[0]?.replace('+', '\\+')}, `, 'im'));
    expect(JSON.parse(body)).toEqual({
      code: 'invalid_argument',
      message: `content type '${type}' is not supported by this call: use ${right}`,
    });
  });

  test('the announced types are accepted', async () => {
    const refused = await fetch(`${daemon.url}/filesystem.Filesystem/Stat`, { method: 'POST', body: 'x' });
    const types = (refused.headers.get('accept-post') ?? '').split(', ');
    expect(types).toContain('application/grpc-web+proto');
    for (const type of types) {
      const response = await fetch(`${daemon.url}/filesystem.Filesystem/Stat`, {
        method: 'POST',
        headers: { 'content-type': type },
        body: '',
      });
      expect(response.status).not.toBe(415);
    }
  });
});

/** Sends `bytes`, each piece after a pause, and reads the response up to the end of the connection. */
async function exchange(bytes: string): Promise<{ head: string; body: string }> {
  const socket = connect(daemon.port, '127.0.0.1');
  onTestFinished(() => void socket.destroy());
  let text = '';
  socket.setEncoding('utf8').on('data', (chunk) => {
    text += chunk;
  });
  socket.write(bytes);
  await once(socket, 'end');
  const end = text.indexOf('\r\n\r\n');
  return { head: text.slice(0, end + 2), body: text.slice(end + 4) };
}

const TRACE = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
const OF_EVERY_RESPONSE = [
  'access-control-allow-origin',
  'access-control-expose-headers',
  'x-request-id',
  'traceparent',
];

test.each([
  ['health', 'GET /health', '', 204],
  ['health by its route', 'GET /health?verbose', '', 200],
  ['init', 'POST /init', '{}', 204],
  ['init that is refused', 'POST /init', '{', 400],
  ['init by its route', 'POST /init?x', '{}', 204],
  ['init that its route refuses', 'POST /init?x', '{', 400],
  ['a call', 'POST /process.Process/List', '{}', 200],
  ['a call that fails', 'POST /process.Process/List', '{', 400],
  ['a call by its route', 'POST /process.Process/List?x', '{}', 200],
  ['a call that its route refuses', 'POST /process.Process/List?x', '{', 400],
  ['a stream', 'POST /process.Process/Connect', '\0\0\0\0\x02{}', 200],
  ['a stream by its route', 'POST /process.Process/Connect?x', '\0\0\0\0\x02{}', 200],
  ['no operation', 'GET /none', '', 404],
  ['a file', 'GET /files?path=/etc/hostname', '', 200],
  ['a file by its route', 'GET /files?x=&path=/etc/hostname', '', 200],
  ['no file', 'GET /files?path=/etc/none', '', 404],
])('the headers of every response are sent once: %s', async (_name, operation, content, status) => {
  const lines = [
    ...[`${operation} HTTP/1.1`, 'host: a', 'connection: close', `content-length: ${content.length}`],
    `content-type: application/${operation.includes('Connect') ? 'connect+json' : 'json'}`,
    ...['x-request-id: mine', `traceparent: ${TRACE}`],
  ];
  const { head } = await exchange(`${lines.join('\r\n')}\r\n\r\n${content}`);
  expect(head).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
  const names = Array.from(head.matchAll(/^([\w-]+):/gm), ([, name = '']) => name.toLowerCase()).sort();
  expect(names).toEqual([...new Set(names)]);
  const isFile = operation.startsWith('GET /files') && status === 200;
  expect(names).toEqual(expect.arrayContaining([...OF_EVERY_RESPONSE, 'cache-control']));
  expect(head).toMatch(isFile ? /^cache-control: private, no-cache\r$/m : /^cache-control: no-store\r$/m);
});

test.each(['a\tb', 'a b', 'a\rb: c', 'a\nb: c', 'a\r\n b: c', 'a\0b', '\u00fc', 'a'.repeat(129)])(
  'the id %j of a request does not come to the head of its response',
  async (id) => {
    const ids = `x-request-id: ${id}\r\ntraceparent: ${id}`;
    const { head } = await exchange(`GET /health HTTP/1.1\r\nhost: a\r\nconnection: close\r\n${ids}\r\n\r\n`);
    expect(head).toMatch(/^HTTP\/1.1 (204|400) /);
    expect(head).not.toMatch(/^(x-request-id|traceparent|b):/im);
  },
);

describe('malformed HTTP is refused', () => {
  const LONG = 'a'.repeat(20_000);

  test.each([
    ['no request line', 'nonsense\r\n\r\n', 400, /^bad request: Invalid method/],
    ['HTTP/2', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 400, /^bad request: /],
    ['a header that is none', 'GET /health HTTP/1.1\r\nhost: a\r\nno colon\r\n\r\n', 400, /^bad request: /],
    [
      'two lengths',
      'POST /init HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n',
      400,
      /./,
    ],
    [
      'a bad chunk',
      'POST /init HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n',
      400,
      /chunk/,
    ],
    ['no host', 'GET /health HTTP/1.1\r\n\r\n', 400, /^header Host is missing/],
    [
      'two hosts',
      'GET /health HTTP/1.1\r\nhost: a\r\nHost: a\r\n\r\n',
      400,
      /^header Host was sent 2 times: send it once/,
    ],
    [
      'another transfer coding',
      'POST /init HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked\r\nconnection: close\r\n\r\n0\r\n\r\n',
      501,
      /^transfer coding 'gzip, chunked'/,
    ],
    [
      'a path that cannot be decoded',
      'GET /%zz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n',
      400,
      /%zz/,
    ],
    ['a header too large', `GET /health HTTP/1.1\r\nhost: a\r\nx-a: ${LONG}\r\n\r\n`, 431, /16384 bytes/],
    ['a path too long', `GET /${LONG} HTTP/1.1\r\nhost: a\r\n\r\n`, 431, /16384 bytes/],
    [
      'an expectation',
      'POST /init HTTP/1.1\r\nhost: a\r\nexpect: more\r\nconnection: close\r\n\r\n',
      417,
      /'more'/,
    ],
  ])('%s', async (_name, bytes, status, message) => {
    const { head, body } = await exchange(bytes);
    expect(head).toMatch(new RegExp(`^HTTP/1.1 ${status} \\w`));
    expect(head).toMatch(/^content-type: application\/json; charset=utf-8\r$/im);
    expect(head).toMatch(/^x-content-type-options: nosniff\r$/im);
    expect(head).toMatch(/^cache-control: no-store\r$/im);
    expect(head).toMatch(/^connection: close\r$/im);
    expect(head.toLowerCase()).toContain(`content-length: ${Buffer.byteLength(body)}\r\n`);
    expect(JSON.parse(body)).toEqual({ code: status, message: expect.stringMatching(message) });
  });

  test('nonsense behind a request is refused when its stream has ended', async () => {
    const start = JSON.stringify({ process: { cmd: 'cat' }, stdin: true, tag: 'before-nonsense' });
    const envelope = Buffer.alloc(5);
    envelope.writeUInt32BE(start.length, 1);
    const head = [
      'POST /process.Process/Start HTTP/1.1',
      'host: a',
      'content-type: application/connect+json',
      `content-length: ${start.length + 5}`,
    ];
    const socket = connect(daemon.port, '127.0.0.1').setEncoding('latin1');
    onTestFinished(() => void socket.destroy());
    let text = '';
    socket.on('data', (chunk) => {
      text += chunk;
    });
    socket.write(
      `${head.join('\r\n')}\r\n\r\n${envelope.toString('latin1')}${start}nonsense\r\n\r\n`,
      'latin1',
    );
    await until('it runs', () => text.includes('start'));
    const closed = closing(socket);
    const body = JSON.stringify({ process: { tag: 'before-nonsense' } });
    const headers = { 'content-type': 'application/json' };
    await fetch(`${daemon.url}/process.Process/CloseStdin`, { method: 'POST', headers, body });
    await closed;
    expect(Array.from(text.matchAll(/HTTP\/1.1 (\d+)/g), ([, status]) => status)).toEqual(['200', '400']);
    expect(text.indexOf('bad request')).toBeGreaterThan(text.indexOf('exited'));
  });
});

test('responses expose all headers that clients of connect read', async () => {
  const { headers } = await fetch(`${daemon.url}/health`);
  const exposed = headers.get('access-control-expose-headers')?.split(', ');
  expect(exposed).toEqual(expect.arrayContaining([...cors.exposedHeaders]));
});

describe('Expect: 100-continue', () => {
  const TOKEN = 'secret';
  const UNARY = ['/process.Process/List', 'application/json', '{}'] as const;
  let closed: TestDaemon;
  beforeAll(async () => {
    closed = await startDaemon();
    const body = JSON.stringify({ accessToken: TOKEN });
    expect((await fetch(`${closed.url}/init`, { method: 'POST', body })).status).toBe(204);
  });
  afterAll(() => closed[Symbol.asyncDispose]());

  /** The statuses of the responses to a request whose body is sent after `100 Continue`, and never without. */
  async function statusesOf(path: string, type: string, body: string, token: string): Promise<string[]> {
    const socket = connect(closed.port, '127.0.0.1').setEncoding('latin1');
    onTestFinished(() => void socket.destroy());
    const head = [
      `POST ${path} HTTP/1.1`,
      ...['Host: a', 'Expect: 100-continue', 'Connection: close'],
      `Content-Type: ${type}`,
      `Content-Length: ${body.length}`,
      `X-Access-Token: ${token}`,
    ];
    socket.write(`${head.join('\r\n')}\r\n\r\n`);
    let text = '';
    socket.on('data', (piece) => {
      text += piece;
      if (text === 'HTTP/1.1 100 Continue\r\n\r\n') socket.write(body);
    });
    await closing(socket);
    return Array.from(text.matchAll(/HTTP\/1\.1 (\d+) /g), ([, status = '']) => status);
  }

  const cases = () => [
    UNARY,
    ['/process.Process/Connect', 'application/connect+json', '\0\0\0\0\x02{}'] as const,
    [`/files?path=${closed.scratch}/expected`, 'application/octet-stream', 'content'] as const,
    [`/files?path=${closed.scratch}/expected`, 'multipart/form-data; boundary=b', '--b--\r\n'] as const,
    ['/files/compose', 'application/json', '{}'] as const,
  ];

  test('is not answered before the caller is authorized', async () => {
    // A stream's status is 200: its error is in the body.
    for (const [path, type, body] of cases())
      expect(await statusesOf(path, type, body, 'other'), path).toEqual([
        path.endsWith('Connect') ? '200' : '401',
      ]);
  });

  test('is answered before the body is read', async () => {
    for (const [path, type, body] of cases())
      expect(await statusesOf(path, type, body, TOKEN), path).toEqual(['100', expect.any(String)]);
    expect(await statusesOf('/init', 'application/json', JSON.stringify({ accessToken: TOKEN }), '')).toEqual(
      ['100', '204'],
    );
  });
});

test('a request that cannot be read is refused after the response to the one before it', async () => {
  const { head, body } = await exchange('GET /metrics HTTP/1.1\r\nhost: a\r\n\r\nnonsense\r\n\r\n');
  expect(head).toMatch(/^HTTP\/1\.1 200 OK/);
  expect(body).toMatch(/^\{"ts".*\}HTTP\/1\.1 400 Bad Request\r\n/s);
});

test.each(['/init', '/files?path=/tmp/x', '/process.Process/List', '/none'])(
  'another transfer coding is refused, with a query or without: %s',
  async (path) => {
    const query = path.includes('?') ? '&' : '?';
    for (const each of [path, `${path}${query}x`]) {
      const coding = 'transfer-encoding: gzip, chunked\r\nconnection: close';
      const { head } = await exchange(`POST ${each} HTTP/1.1\r\nhost: a\r\n${coding}\r\n\r\n0\r\n\r\n`);
      expect(head, each).toMatch(/^HTTP\/1\.1 501 /);
    }
  },
);
