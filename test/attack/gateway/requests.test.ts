import { connect } from 'node:net';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { Bystander } from '../../support/programs/bystander.ts';
import { startGateway, type TestGateway } from '../../support/programs/gateway.ts';
import { exchange, message, type RawSandbox, startRawSandbox } from '../../support/programs/raw-sandbox.ts';
import { until } from '../../support/until.ts';

const OK = 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok';

let gateway: TestGateway;
let bystander: Bystander;
let sandbox: RawSandbox;

beforeAll(async () => {
  gateway = await startGateway();
  sandbox = await startRawSandbox((socket) => socket.end(OK));
  await gateway.register('one', sandbox.port, { timeout: 3600 });
  bystander = await Bystander.of(gateway);
});

afterAll(async () => {
  for (const each of [bystander, sandbox, gateway]) await each[Symbol.asyncDispose]();
});

const TO = ['host: a', 'svc-sandbox-id: one'];
const CLOSE = 'connection: close';
const UPGRADE = ['connection: upgrade', 'upgrade: websocket'];

const TRAILERS = ['x-sum', '', 'x-sum, content-length', 'a'.repeat(4000), '\xff', ', ,', 'trailer'];
const SHAPES: Readonly<Record<string, (trailer: string) => string>> = {
  GET: (trailer) => message(['GET / HTTP/1.1', ...TO, CLOSE, trailer]),
  HEAD: (trailer) => message(['HEAD / HTTP/1.1', ...TO, CLOSE, trailer]),
  OPTIONS: (trailer) => message(['OPTIONS / HTTP/1.1', ...TO, CLOSE, trailer]),
  DELETE: (trailer) => message(['DELETE / HTTP/1.1', ...TO, CLOSE, trailer]),
  'HTTP/1.0': (trailer) => message(['GET / HTTP/1.0', ...TO, trailer]),
  'POST with a length': (trailer) =>
    message(['POST / HTTP/1.1', ...TO, CLOSE, trailer, 'content-length: 2'], 'hi'),
  'POST without a body': (trailer) =>
    message(['POST / HTTP/1.1', ...TO, CLOSE, trailer, 'content-length: 0']),
  'POST in chunks': (trailer) =>
    message(
      ['POST / HTTP/1.1', ...TO, CLOSE, trailer, 'transfer-encoding: chunked'],
      '2\r\nhi\r\n0\r\nx-sum: 1\r\n\r\n',
    ),
  'GET in chunks': (trailer) =>
    message(
      ['GET / HTTP/1.1', ...TO, CLOSE, trailer, 'transfer-encoding: chunked'],
      '0\r\nx-sum: 1\r\nx-other: 9\r\n\r\n',
    ),
  'named by Connection': (trailer) =>
    message(['GET / HTTP/1.1', ...TO, 'connection: close, trailer, content-length', trailer]),
  'expected to go on': (trailer) =>
    message(['POST / HTTP/1.1', ...TO, CLOSE, trailer, 'expect: 100-continue', 'content-length: 2'], 'hi'),
  upgrade: (trailer) => message(['GET / HTTP/1.1', ...TO, ...UPGRADE, trailer]),
};

test.each(Object.keys(SHAPES))('a Trailer header is accepted: %s', async (shape) => {
  for (const names of TRAILERS) {
    for (const trailer of [`Trailer: ${names}`, `trailer: ${names}\r\nTRAILER: ${names}`]) {
      const answer = await exchange(gateway.port, SHAPES[shape]?.(trailer) ?? '');
      expect(answer).toMatch(/^(HTTP\/1\.1 100 Continue\r\n\r\n)?HTTP\/1\.1 200 OK\r\n/);
    }
  }
  await bystander.isServed();
});

test('a Trailer header is accepted to an unknown sandbox, and in a platform operation', async () => {
  for (const target of ['svc-sandbox-id: nobody', 'x-none: a']) {
    for (const path of ['/', '/sandboxes', '/gateway/health']) {
      const lines = [`GET ${path} HTTP/1.1`, 'host: a', target, CLOSE, 'trailer: x-sum'];
      expect(await exchange(gateway.port, message(lines))).toMatch(/^HTTP\/1\.1 (204|400|401|502) /);
    }
  }
  await bystander.isServed();
});

test.each([
  ['no Host', 'svc-sandbox-id: one', 'header Host is missing'],
  ['two of them', 'Host: b\r\nhost: a\r\nsvc-sandbox-id: one', 'header Host was sent 2 times: send it once'],
])('a request, and an upgrade, with %s is refused', async (_what, lines, reason) => {
  for (const more of [[], UPGRADE]) {
    const answer = await exchange(gateway.port, message(['GET / HTTP/1.1', lines, ...more]));
    expect(answer).toMatch(/^HTTP\/1\.1 400 /);
    expect(answer).toMatch(/^connection: close\r$/im);
    expect(answer).toContain(reason);
  }
});

test.each([
  ['without a sandbox', ['host: a']],
  ['to an unknown sandbox', ['host: a', 'svc-sandbox-id: nobody']],
  ['with a malformed id', ['host: a', 'svc-sandbox-id: a/b']],
  ['to a closed port', [...TO, 'svc-sandbox-port: 1']],
  ['to a closed operation', TO],
  ['that is accepted', TO],
])('an upgrade behind a request waits for its response, and harms nobody: %s', async (what, lines) => {
  const path = what.includes('operation') ? '/init' : '/';
  const upgrade = message([`GET ${path} HTTP/1.1`, ...lines, ...UPGRADE]);
  const asked = new Promise<() => void>((resolve) => {
    sandbox.behaviour = (inner) => resolve(() => inner.end(OK));
  });
  const socket = connect(gateway.port, '127.0.0.1').setEncoding('latin1');
  onTestFinished(() => void socket.destroy());
  let text = '';
  socket
    .on('error', () => {})
    .on('data', (piece) => {
      text += piece;
    });
  socket.write(message(['GET / HTTP/1.1', ...TO]) + upgrade);
  const answer = await asked;
  sandbox.behaviour = (inner) => inner.end(OK);
  await bystander.isServed();
  expect(text).toBe('');
  answer();
  await until('both are answered', () => text.split('HTTP/1.1 ').length > 2);
  expect(text).toMatch(/^HTTP\/1\.1 200 /);
  await bystander.isServed();
});

test.each(['svc-sandbox-id: one', 'svc-sandbox-id: nobody', 'svc-sandbox-id: a/b', 'x-none: a'])(
  'an upgrade with a body is handled as an ordinary request: %s',
  async (to) => {
    const upgrade = [...UPGRADE, to, 'host: a'];
    const bodies = [
      [['content-length: 5'], 'hello'],
      [['content-length: 5'], 'hel'],
      [['transfer-encoding: chunked'], '5\r\nhello\r\n0\r\n\r\n'],
      [['transfer-encoding: chunked'], '5\r\nhel'],
      [['content-length: 5'], `hello${message(['GET / HTTP/1.1', ...upgrade])}`],
    ] as const;
    for (const [lines, body] of bodies) {
      const answer = await exchange(
        gateway.port,
        message(['GET / HTTP/1.1', ...upgrade, ...lines], body),
        '',
      );
      expect(answer).toMatch(/^(HTTP\/1\.1 (200|400|502) |$)/);
    }
    await bystander.isServed();
  },
);

test('bodies that break off or have malformed chunks end their connection alone', async () => {
  const bodies = [
    '',
    '2\r\nh',
    'z\r\n',
    '2\r\nhi\r\n0\r\nx sum: 1\r\n\r\n',
    `0\r\nx-sum: ${'a'.repeat(100_000)}`,
  ];
  const head = message(['POST / HTTP/1.1', ...TO, 'transfer-encoding: chunked', 'trailer: x-sum']);
  for (const body of bodies) {
    const socket = connect(gateway.port, '127.0.0.1');
    socket.on('error', () => {});
    const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()));
    socket.end(Buffer.from(head + body, 'latin1'));
    socket.resume();
    await closed;
  }
  await bystander.isServed();
});

test.each([
  ['a bad one', 'HTTP/1.1 200 O\x01K\r\n\r\n', 502],
  ['a good one', OK, 200],
  ['none', '', 502],
])('a response during an upload, %s, leaves the connection usable', async (_what, bytes, status) => {
  sandbox.behaviour = (socket) => socket.end(Buffer.from(bytes, 'latin1'));
  const body = 'a'.repeat(3_000_000);
  const upload = message(['POST / HTTP/1.1', ...TO, `content-length: ${body.length}`], body);
  const next = message(['GET /none HTTP/1.1', 'host: a', 'svc-sandbox-id: nobody', CLOSE]);
  const answers = (await exchange(gateway.port, upload + next)).match(/HTTP\/1\.1 \d+/g);
  expect(answers).toEqual([`HTTP/1.1 ${status}`, 'HTTP/1.1 502']);
  sandbox.behaviour = (socket) => socket.end(OK);
  await bystander.isServed();
});

test.each([
  ['no HTTP', message(['nonsense']), 400],
  ['no host', message(['GET / HTTP/1.1', 'svc-sandbox-id: one']), 400],
  ['a head that is too large', message(['GET / HTTP/1.1', ...TO, `x-large: ${'x'.repeat(50_000)}`]), 431],
  [
    'another expectation',
    message(['POST / HTTP/1.1', ...TO, 'expect: more', 'content-length: 2'], 'hi'),
    417,
  ],
  ['a chunk that is none', message(['POST / HTTP/1.1', ...TO, 'transfer-encoding: chunked'], 'zz\r\n'), 400],
])('what Node would refuse without a body has the form of all errors: %s', async (_what, bytes, status) => {
  sandbox.behaviour = () => {};
  const [head = '', body = ''] = (await exchange(gateway.port, bytes)).split('\r\n\r\n');
  expect(head).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
  expect(JSON.parse(body)).toEqual({ code: status, message: expect.any(String) });
  sandbox.behaviour = (socket) => socket.end(OK);
  await bystander.isServed();
});

test('the gateway has logged no error', () => {
  expect(gateway.log.filter(({ level }) => level >= 50)).toEqual([]);
});
