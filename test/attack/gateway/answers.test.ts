import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { closing } from '../../support/clients/closing.ts';
import { Bystander } from '../../support/programs/bystander.ts';
import { startGateway, type TestGateway, toSandbox } from '../../support/programs/gateway.ts';
import { exchange, message, type RawSandbox, startRawSandbox } from '../../support/programs/raw-sandbox.ts';

let gateway: TestGateway;
let bystander: Bystander;
let hostile: RawSandbox;

beforeAll(async () => {
  gateway = await startGateway();
  hostile = await startRawSandbox();
  await gateway.register('hostile', hostile.port, { timeout: 3600 });
  bystander = await Bystander.of(gateway);
});

afterAll(async () => {
  for (const each of [bystander, hostile, gateway]) await each[Symbol.asyncDispose]();
});

const WAYS = {
  GET: message(['GET / HTTP/1.1', 'host: a', 'svc-sandbox-id: hostile', 'connection: close']),
  HEAD: message(['HEAD / HTTP/1.1', 'host: a', 'svc-sandbox-id: hostile', 'connection: close']),
  'HTTP/1.0': message(['GET / HTTP/1.0', 'svc-sandbox-id: hostile']),
  POST: message(
    [
      'POST / HTTP/1.1',
      'host: a',
      'svc-sandbox-id: hostile',
      'connection: close',
      'transfer-encoding: chunked',
    ],
    '3\r\nabc\r\n0\r\n\r\n',
  ),
  upgrade: message([
    'GET / HTTP/1.1',
    'host: a',
    'svc-sandbox-id: hostile',
    'connection: upgrade',
    'upgrade: websocket',
  ]),
} as const;
const ways = Object.keys(WAYS) as readonly (keyof typeof WAYS)[];

/** Has the sandbox send these bytes and close its connection; returns what the client gets. */
function answered(way: keyof typeof WAYS, bytes: string): Promise<string> {
  hostile.behaviour = (socket) => socket.end(Buffer.from(bytes, 'latin1'));
  return exchange(gateway.port, WAYS[way]);
}

/** Expects the contract's 502, without anything that the sandbox has sent. */
function expectBadGateway(answer: string, way: keyof typeof WAYS): void {
  expect(answer).toMatch(/^HTTP\/1\.1 502 Bad Gateway\r\n/);
  expect(answer).not.toContain('secret');
  const [, body = ''] = answer.split('\r\n\r\n');
  if (way === 'HEAD') expect(body).toBe('');
  else expect(JSON.parse(body)).toEqual({ sandboxID: 'hostile', message: expect.any(String), code: 502 });
}

/** Writes the same bytes for as long as the connection is open. */
function pour(socket: Socket, bytes: Buffer): void {
  const write = () => {
    while (socket.writable && socket.write(bytes));
  };
  socket.on('drain', write);
  write();
}

const REST = 'x-own: secret\r\ncontent-length: 6\r\n\r\nsecret';

describe.each(ways)('an invalid response is 502, asked by %s', (way) => {
  test.each([
    ...['O\x01K', '\x00', '\x1b[31m', '\x7f', 'O\x08K', '\x0b'].map((reason) => `HTTP/1.1 200 ${reason}`),
    ...['000', '001', '042', '099', '99', '0', '1', '-1', '1000', '20', 'abc', ''].map(
      (status) => `HTTP/1.1 ${status} OK`,
    ),
    'HTTP/1.1 099',
    'HTTP/9.9 200 OK',
    'HTTP/2.0 200 OK',
    'HTTP/0.9 200 OK',
    'ICY 200 OK',
  ])('%j', async (line) => {
    expectBadGateway(await answered(way, `${line}\r\n${REST}`), way);
    await bystander.isServed();
  });

  test.each([
    'content-length: 6\r\ncontent-length: 7',
    'content-length: -1',
    'content-length: 6, 6',
    'content-length: 99999999999999999999999999',
    'transfer-encoding: gzip',
    'transfer-encoding: chunked, gzip',
    'transfer-encoding: chunked\r\ntransfer-encoding: chunked',
    'transfer-encoding: chunked\r\ncontent-length: 6',
    'x-own: a\x00b',
    'x-own: a\x01b',
    'x-own: a\rb',
    'x own: a',
    'x-\x01: a',
    ': a',
    'x-own\x00: a',
    `x-own: ${'a'.repeat(100_000)}`,
    Array.from({ length: 3000 }, (_, index) => `x-${index}: secret`).join('\r\n'),
  ])('a header like %.60j', async (headers) => {
    expectBadGateway(await answered(way, `HTTP/1.1 200 OK\r\n${headers}\r\n\r\nsecret`), way);
    await bystander.isServed();
  });

  test.each([
    '',
    '\r\n',
    'garbage',
    '\0'.repeat(1000),
    'HTTP/1.1 101 Wait\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n',
    'HTTP/1.1 101 Switching Protocols\r\n\r\n',
    'HTTP/1.1 100 Continue\r\n\r\n',
  ])('nothing but %.40j', async (bytes) => {
    expectBadGateway(await answered(way, bytes), way);
    await bystander.isServed();
  });
});

test.each(ways.filter((way) => way !== 'upgrade'))(
  'an upgrade that %s has not asked for is 502',
  async (way) => {
    const bytes =
      'HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nsecret';
    expectBadGateway(await answered(way, bytes), way);
    await bystander.isServed();
  },
);

describe.each(['100', '102', '103', '199'])('provisional responses: %s', (status) => {
  test.each(ways)('a few are dropped and the response forwarded, asked by %s', async (way) => {
    const answer = await answered(
      way,
      `${`HTTP/1.1 ${status} Wait\r\nx-own: secret\r\n\r\n`.repeat(5)}HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok`,
    );
    expect(answer).toMatch(/^HTTP\/1\.[01] 200 OK\r\n/);
    expect(answer).not.toContain('secret');
  });

  test.each(ways)('without end they are 502, asked by %s', async (way) => {
    const flood = Buffer.from(`HTTP/1.1 ${status} Wait\r\nx-own: secret\r\n\r\n`.repeat(1000));
    hostile.behaviour = (socket) => pour(socket, flood);
    expectBadGateway(await exchange(gateway.port, WAYS[way]), way);
    await bystander.isServed();
  });
});

test('on a reused connection the limit of a head counts from the request', async () => {
  const flood = Buffer.from('HTTP/1.1 103 Wait\r\nx-own: secret\r\n\r\n'.repeat(1000));
  const body = 'a'.repeat(200_000);
  const connections = new Set<Socket>();
  let requests = 0;
  hostile.behaviour = (socket) => {
    connections.add(socket);
    if (++requests <= 2) socket.write(`HTTP/1.1 200 OK\r\ncontent-length: ${body.length}\r\n\r\n${body}`);
    else pour(socket, flood);
  };
  for (let call = 0; call < 2; call++) {
    const response = await fetch(gateway.url, { headers: toSandbox('hostile') });
    expect(await response.text()).toBe(body);
  }
  expectBadGateway(await exchange(gateway.port, WAYS.GET), 'GET');
  expect(connections.size).toBe(1);
  await bystander.isServed();
});

describe('a Trailer header where no trailers can be is dropped and the response forwarded', () => {
  const cases: readonly (readonly [string, string, string])[] = [
    ['a length', 'HTTP/1.1 200 OK\r\ntrailer: x-sum\r\ncontent-length: 2\r\n\r\nok', 'ok'],
    ['no length', 'HTTP/1.1 200 OK\r\ntrailer: x-sum\r\n\r\nok', 'ok'],
    ['HTTP/1.0', 'HTTP/1.0 200 OK\r\ntrailer: x-sum\r\n\r\nok', 'ok'],
    ['204', 'HTTP/1.1 204 No Content\r\ntrailer: x-sum\r\n\r\n', ''],
    ['304', 'HTTP/1.1 304 Not Modified\r\ntrailer: x-sum\r\n\r\n', ''],
    ['304 with a length', 'HTTP/1.1 304 Not Modified\r\ntrailer: x-sum\r\ncontent-length: 9\r\n\r\n', ''],
    [
      '204 in chunks',
      'HTTP/1.1 204 No Content\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx-sum: 1\r\n\r\n',
      '',
    ],
  ];
  test.each(cases.flatMap((each) => ways.map((way) => [way, ...each] as const)))(
    '%s answered with %s',
    async (way, _name, bytes, body) => {
      const answer = await answered(way, bytes);
      expect(answer).toMatch(/^HTTP\/1\.[01] (200|204|304) /);
      expect(answer.toLowerCase()).not.toContain('trailer');
      const [, rest = ''] = answer.split('\r\n\r\n');
      if (way === 'HEAD') expect(rest).toBe('');
      else expect(rest).toContain(body);
      await bystander.isServed();
    },
  );

  test.each(ways)(
    'trailers behind chunks are forwarded to clients that can receive them: %s',
    async (way) => {
      const answer = await answered(
        way,
        'HTTP/1.1 200 OK\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-sum: 1\r\n\r\n',
      );
      expect(answer).toMatch(/^HTTP\/1\.[01] 200 OK\r\n/);
      const [, rest = ''] = answer.split(/\r\n\r\n(.*)/s);
      if (way === 'HEAD') expect(rest).toBe('');
      else if (way === 'HTTP/1.0') expect(rest).toBe('ok');
      else if (way === 'upgrade') expect(rest).toBe('2\r\nok\r\n0\r\n\r\n');
      else expect(rest).toBe('2\r\nok\r\n0\r\nx-sum: 1\r\n\r\n');
      await bystander.isServed();
    },
  );
});

test.each(ways)('trailers that are too large or malformed break the response off: %s', async (way) => {
  for (const trailers of [`x-sum: ${'a'.repeat(200_000)}`, 'x sum: a', 'x-sum: a\x01b', ': ']) {
    const answer = await answered(
      way,
      `HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n${trailers}\r\n\r\n`,
    );
    expect(answer).toMatch(/^HTTP\/1\.[01] (200|502) /);
    expect(answer).not.toMatch(/0\r\n\r\n$/);
    await bystander.isServed();
  }
});

test.each(ways)('a response that ends after any byte ends the exchange: %s', async (way) => {
  const whole =
    'HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\nHTTP/1.1 200 OK\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-sum: 1\r\n\r\n';
  for (let length = 0; length < whole.length; length++) {
    const answer = await answered(way, whole.slice(0, length));
    expect(answer).toMatch(/^HTTP\/1\.[01] (200|502) /);
  }
  await bystander.isServed();
});

test('bytes behind the end of a response are dropped', async () => {
  const answer = await answered(
    'GET',
    `HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok${'HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecret'.repeat(1000)}`,
  );
  expect(answer).toMatch(/^HTTP\/1\.1 200 OK\r\n/);
  expect(answer).not.toContain('secret');
  await bystander.isServed();
});

test('a connection on which bytes come that nobody has asked for is closed: they could be taken for the next answer', async () => {
  let left: Socket | null = null;
  hostile.behaviour = (socket) => {
    left = socket;
    socket.write('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok');
  };
  for (const bytes of ['HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecret', 'H', '\n']) {
    expect(await (await fetch(gateway.url, { headers: toSandbox('hostile') })).text()).toBe('ok');
    const socket: Socket = left ?? expect.unreachable();
    const closed = closing(socket);
    socket.write(bytes);
    await closed;
  }
  await bystander.isServed();
});

test('a client that disconnects during a hostile response affects no other', async () => {
  for (const bytes of ['HTTP/1.1 099 \x01\r\n\r\n', 'HTTP/1.1 200 OK\r\n\r\nhalf', 'HTTP/1.1 101 \r\n\r\n']) {
    for (const way of ways) {
      const asked = new Promise<void>((resolve) => {
        hostile.behaviour = (socket) => {
          resolve();
          socket.write(bytes, 'latin1');
        };
      });
      const socket = connect(gateway.port, '127.0.0.1');
      socket.on('error', () => {});
      await once(socket, 'connect');
      socket.write(WAYS[way]);
      await asked;
      socket.resetAndDestroy();
    }
  }
  await bystander.isServed();
});

test('the gateway has logged no error', () => {
  expect(gateway.log.filter(({ level }) => level >= 50)).toEqual([]);
});
