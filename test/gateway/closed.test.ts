import { once } from 'node:events';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { closedOperation, originForm } from '../../src/gateway/routes/closed-paths.ts';
import { startDaemon, type TestDaemon } from '../support/programs/daemon.ts';
import { startGateway, type TestGateway } from '../support/programs/gateway.ts';

let gateway: TestGateway;
let daemon: TestDaemon;

beforeAll(async () => {
  [gateway, daemon] = await Promise.all([startGateway(), startDaemon()]);
  await gateway.register('one', daemon.port);
});

afterAll(async () => {
  for (const each of [gateway, daemon]) await each[Symbol.asyncDispose]();
});

/** Sends a request; returns all bytes that come back until the connection is closed. */
async function send(lines: readonly string[], body = ''): Promise<string> {
  const socket = connect(gateway.port, '127.0.0.1');
  await once(socket, 'connect');
  socket.write(`${lines.join('\r\n')}\r\n\r\n${body}`);
  return text(socket);
}

const head = (target: string, method = 'POST') => [
  `${method} ${target} HTTP/1.1`,
  'host: gateway',
  'svc-sandbox-id: one',
  'connection: close',
];

const OPERATIONS = ['init', 'freeze', 'unfreeze', 'collapse', 'fsfreeze', 'fsthaw', 'upgrade'];

test.each(OPERATIONS)('/%s is closed', async (operation) => {
  const answer = await send(
    [...head(`/${operation}`), 'content-length: 2', 'content-type: application/json'],
    '{}',
  );
  expect(answer).toMatch(/^HTTP\/1\.1 403 /);
  expect(answer).toContain(`{"sandboxID":"one","message":"/${operation} is not open to clients","code":403}`);
});

const WAYS = [
  '/init?a=b',
  '/init#a',
  '/init/',
  '//init',
  '/./init',
  '/a/../init',
  '/%69nit',
  '/%2569nit',
  '/%69%6e%69%74',
  '/INIT',
  '/Init/',
  '/%2finit',
  '/%2Finit%2F',
  '/a/%2e%2e/init',
  '/\\init',
  '/init;a=b',
  '/init%00',
  '/init%20',
  'http://gateway/init',
  'http://gateway//init?x',
  'HTTP://gateway/%69nit',
];

test.each(WAYS)('%s is closed, too', async (target) => {
  expect(await send([...head(target), 'content-length: 0'])).toMatch(/^HTTP\/1\.1 403 /);
  expect(await send(head(target, 'GET'))).toMatch(/^HTTP\/1\.1 403 /);
  expect(daemon.log.filter(({ operation }) => String(operation).includes('init'))).toEqual([]);
});

test("a closed operation is closed on the daemon's port under either of its numbers", async () => {
  const lines = [...head('/init'), `svc-sandbox-port: ${daemon.port}`, 'content-length: 0'];
  expect(await send(lines)).toMatch(/^HTTP\/1\.1 403 /);
});

test('an upgrade to a closed operation is closed, too', async () => {
  const lines = [...head('/init', 'GET').slice(0, 3), 'connection: upgrade', 'upgrade: websocket'];
  expect(await send(lines)).toMatch(/^HTTP\/1\.1 403 /);
});

test('a body is never parsed as a second request', async () => {
  const smuggled = 'POST /init HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n';
  const next = `${head('/health', 'GET').join('\r\n')}\r\n\r\n`;
  for (const named of ['content-length', 'transfer-encoding', 'Content-Length , keep-alive']) {
    const lines = [
      'GET /health HTTP/1.1',
      'host: gateway',
      'svc-sandbox-id: one',
      `connection: ${named}`,
      `content-length: ${smuggled.length}`,
    ];
    const answers = await send(lines, `${smuggled}${next}`);
    expect(answers.match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 204', 'HTTP/1.1 204']);
  }
  const chunked = `${smuggled.length.toString(16)}\r\n${smuggled}\r\n0\r\n\r\n`;
  const lines = [
    'GET /health HTTP/1.1',
    'host: gateway',
    'svc-sandbox-id: one',
    'connection: transfer-encoding',
  ];
  const answers = await send([...lines, 'transfer-encoding: chunked'], `${chunked}${next}`);
  expect(answers.match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 204', 'HTTP/1.1 204']);
  expect(daemon.log.filter(({ operation }) => String(operation).includes('init'))).toEqual([]);
});

test('paths that only look similar are open', async () => {
  for (const target of ['/health', '/initial', '/init/x', '/files/init', '/process.Process/List']) {
    expect(closedOperation(target)).toBeNull();
    expect(await send([...head(target), 'content-length: 0'])).not.toMatch(/^HTTP\/1\.1 403 /);
  }
});

test('an absolute target is forwarded in origin form', async () => {
  expect(originForm('http://gateway')).toBe('/');
  expect(originForm('http://gateway?a')).toBe('/?a');
  expect(originForm('http://gateway/a%20b?c')).toBe('/a%20b?c');
  expect(originForm('*')).toBeNull();
  expect(await send(head('http://gateway/health', 'GET'))).toMatch(/^HTTP\/1\.1 204 /);
  expect(await send(head('*', 'OPTIONS'))).toMatch(/^HTTP\/1\.1 400 /);
});

test('a closed operation is closed in every spelling that a server might normalise', () => {
  const encoded = (character: string, times: number) => {
    let code = `%${(character.codePointAt(0) ?? 0).toString(16).padStart(2, '0')}`;
    for (; times > 1; times--) code = code.replace('%', '%25');
    return times === 0 ? character : code;
  };
  const written = fc
    .tuple(fc.constantFrom(...OPERATIONS), fc.array(fc.nat(3), { minLength: 8, maxLength: 8 }), fc.boolean())
    .map(([name, times, upper]) => {
      const text = [...name].map((character, index) => encoded(character, times[index] ?? 0)).join('');
      return upper ? text.toUpperCase() : text;
    });
  const before = fc.constantFrom('/', '//', '/./', '/a/../', '/%2f', '/.%2e/', '\\', '/%5c');
  const after = fc.constantFrom('', '/', '//', '/.', '?x=y', '#z', ';v=1', '%2f', '%00', '/a/..');
  const isClosed = fc.property(before, written, after, (start, name, end) => {
    expect(closedOperation(`${start}${name}${end}`)).not.toBeNull();
  });
  fc.assert(isClosed, { numRuns: 2000 });
});

test('what is decoded at once is what passes over the whole target decode', () => {
  const passes = (text: string): string => {
    const decoded = text.replaceAll(/%([0-9a-f]{2})/gi, (_all, code: string) =>
      String.fromCharCode(Number.parseInt(code, 16)),
    );
    return decoded === text ? text : passes(decoded);
  };
  const piece = fc.constantFrom('%', '2', '5', '%25', '%69', '%32', '%35', '%2', 'i', 'n', 't', '/', 'F');
  const isSame = fc.property(fc.array(piece, { maxLength: 40 }), (pieces) => {
    for (const target of [`/${pieces.join('')}`, `/${pieces.join('')}/../init`])
      expect(closedOperation(target)).toBe(closedOperation(passes(target)));
  });
  fc.assert(isSame, { numRuns: 5000 });
  // A pass for each of them took 28 to 127 ms.
  expect(closedOperation(`/%${'25'.repeat(8000)}69nit`)).toBe('/init');
});
