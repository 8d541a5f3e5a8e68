import { readFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { scratch } from '../../support/machine/scratch.ts';
import { Bystander } from '../../support/programs/bystander.ts';
import { startGateway, type TestGateway } from '../../support/programs/gateway.ts';
import type { LogLine } from '../../support/programs/log-lines.ts';
import { type Behaviour, startRawSandbox } from '../../support/programs/raw-sandbox.ts';
import { hookCalls, phase, record } from '../../support/servers/hook.ts';
import { until } from '../../support/until.ts';

/** The most that the memory of a gateway may grow by. */
const MEMORY_MIB = 150;
const NOBODY = 'HTTP/1.1 204 No Content\r\n\r\n';
const STANDS = JSON.stringify({
  ...{ mode: 'legacy', visited: 3, allowlisted: 1, truncated: false, preFrozen: 0, requested: 2 },
  ...{ frozen: 2, notFrozen: 0, failed: 0, unobservable: 0, sweepMs: 1, waitMs: 2 },
});

const answer = (body: string | Buffer, head = 'HTTP/1.1 200 OK'): Buffer =>
  Buffer.concat([
    Buffer.from(`${head}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n`),
    Buffer.from(body),
  ]);

/** Writes pieces until `mib` are sent, then ends the connection. */
function pour(socket: Socket, piece: Buffer, mib = Number.POSITIVE_INFINITY): void {
  let left = mib * 1024 ** 2;
  const go = () => {
    while (left > 0 && socket.writable) {
      left -= piece.length;
      if (!socket.write(piece)) return;
    }
    if (left <= 0) socket.end();
  };
  socket.on('drain', go);
  go();
}

const ENDLESS = 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n';
const CHUNK = Buffer.from(`10000\r\n${'1'.repeat(0x10000)}\r\n`);

const COMPRESSED = gzipSync(Buffer.alloc(100 * 1024 ** 2));

/** Hostile responses to a freeze. */
const HOSTILE: Readonly<Record<string, Behaviour>> = {
  'a body of 300 MB': (socket) => {
    socket.write(`HTTP/1.1 200 OK\r\ncontent-length: ${300 * 1024 ** 2}\r\n\r\n`);
    pour(socket, Buffer.alloc(1024 ** 2, ' '), 300);
  },
  'a body without end': (socket) => {
    socket.write(`${ENDLESS}b\r\n{"frozen": \r\n`);
    pour(socket, CHUNK);
  },
  'a body without end, refused': (socket) => {
    socket.write(ENDLESS.replace('200', '500'));
    pour(socket, CHUNK);
  },
  'a header without end': (socket) => {
    socket.write('HTTP/1.1 200 OK\r\nx-own: ');
    pour(socket, Buffer.alloc(65_536, 'a'));
  },
  'provisional answers without end': (socket) =>
    pour(socket, Buffer.from('HTTP/1.1 102 Processing\r\n\r\n'.repeat(1000))),
  'trailers without end': (socket) => {
    socket.write(`${ENDLESS}2\r\n{}\r\n0\r\n`);
    pour(socket, Buffer.from(`x-own: ${'a'.repeat(1000)}\r\n`));
  },
  'chunk extensions without end': (socket) => {
    socket.write(ENDLESS);
    pour(socket, Buffer.from(`1;${'a'.repeat(10_000)}\r\n1\r\n`));
  },
  'compressed, much': (socket) => socket.end(answer(COMPRESSED, 'HTTP/1.1 200 OK\r\ncontent-encoding: gzip')),
  'an upgrade': (socket) =>
    socket.write('HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n'),
  'a redirect to itself': (socket) =>
    socket.end('HTTP/1.1 307 Go\r\nlocation: /freeze\r\ncontent-length: 0\r\n\r\n'),
  'a bad reason': (socket) => socket.end('HTTP/1.1 500 \x01\x1b[31m\r\ncontent-length: 3\r\n\r\n\x1b\x00\n'),
  'no status': (socket) => socket.end('HTTP/1.1 000 OK\r\ncontent-length: 2\r\n\r\n{}'),
  nothing: (socket) => socket.end(),
  garbage: (socket) => socket.end('\0\x01\x02'),
  'half a body': (socket) => socket.end('HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"frozen"'),
  ...Object.fromEntries(
    [
      '',
      'null',
      '1',
      '"text"',
      '[]',
      '{}',
      '{"frozen"',
      '[['.repeat(7000),
      '{"a":'.repeat(2000),
      STANDS.replace('"notFrozen":0', '"notFrozen":"0"'),
      STANDS.replace('"notFrozen":0', '"notFrozen":NaN'),
      STANDS.replace('"notFrozen":0', '"notFrozen":null'),
      STANDS.replace('"notFrozen":0,', ''),
      STANDS.replace('"failed":0', '"failed":[]'),
      STANDS.replace('"frozen":2', '"frozen":-2'),
      STANDS.replace('"frozen":2', '"frozen":1e999'),
      STANDS.replace('"frozen":2', '"frozen":9007199254740993'),
      STANDS.replace('"frozen":2', '"frozen":0.5'),
      STANDS.replace('"truncated":false', '"truncated":"no"'),
      STANDS.replace('"truncated":false', '"truncated":true'),
      STANDS.replace('"mode":"legacy"', `"mode":"${'m'.repeat(10_000)}"`),
      STANDS.replace('"mode":"legacy"', '"mode":"\\u001b[31m"'),
      `{"__proto__":${STANDS}}`,
      STANDS.padEnd(17_000),
    ].map((body, index) => [
      `body ${index}: ${body.slice(0, 40)}`,
      (socket: Socket) => socket.end(answer(body)),
    ]),
  ),
};

const operationOf = (head: string) => /^POST (\/[a-z]+)/.exec(head)?.[1] ?? '';

/** A guest with a hostile response to one operation, and correct ones to the others. */
function guest(operation: string, behaviour: Behaviour): Behaviour {
  return (socket, head) => {
    const asked = operationOf(head);
    if (asked === operation) behaviour(socket, head);
    else socket.end(asked === '/freeze' ? answer(STANDS) : asked === '/collapse' ? answer('{}') : NOBODY);
  };
}

const peakMib = (pid: number) =>
  Number(/^VmHWM:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024;

const logged = (id: string, msg: string) =>
  gateway.log.filter((line) => line.sandboxID === id && line.msg === msg);

const names = Object.keys(HOSTILE);
const idOf = (name: string) => `h${names.indexOf(name)}`;

let gateway: TestGateway;
let bystander: Bystander;
let file: string;
let before: number;

beforeEach(async () => {
  const directory = scratch();
  file = join(directory, 'told');
  gateway = await startGateway({ directory, args: [`--hook=${record(file)}`] });
  bystander = await Bystander.of(gateway);
  before = peakMib(gateway.pid);
});

afterEach(async () => {
  await bystander.isServed();
  expect(peakMib(gateway.pid) - before).toBeLessThan(MEMORY_MIB);
  expect(gateway.log.filter(({ level }) => level >= 50)).toEqual([]);
  const longest = Math.max(...gateway.log.map((line) => JSON.stringify(line).length));
  expect(longest).toBeLessThan(4000);
  for (const each of [bystander, gateway]) await each[Symbol.asyncDispose]();
});

/** Registers a sandbox for each hostile response to an operation; it expires at once. */
async function expireAll(
  operation: string,
  more: Readonly<Record<string, unknown>> = {},
): Promise<AsyncDisposable> {
  const sandboxes = new AsyncDisposableStack();
  for (const [name, behaviour] of Object.entries(HOSTILE)) {
    const sandbox = sandboxes.use(await startRawSandbox(guest(operation, behaviour)));
    await gateway.register(idOf(name), sandbox.port, { timeout: 0, ...more });
  }
  return sandboxes;
}

test('to a freeze: the expiry fails and is tried again, and goes on without it in the end', async () => {
  await using _sandboxes = await expireAll('/freeze');
  for (const name of names) {
    const failures = await until(
      `'${name}' has failed twice`,
      () => logged(idOf(name), 'a step of the lifecycle failed'),
      ({ length }) => length >= 2,
    );
    expect(failures.slice(0, 2), name).toMatchObject([
      { step: 'freeze', failures: 1, reason: expect.any(String) },
      { step: 'freeze', failures: 2, reason: expect.any(String) },
    ]);
  }
  const heard = hookCalls(file);
  expect(
    heard.every(({ attempt, freeze, collapse }) => attempt > 3 && freeze === null && collapse === null),
  ).toBe(true);
});

test('to a freeze with onExpiry remove: the sandbox is removed', async () => {
  await using _sandboxes = await expireAll('/freeze', { onExpiry: 'remove' });
  for (const name of names) await phase(gateway, idOf(name), 'gone');
  const heard = hookCalls(file);
  expect(heard).toHaveLength(names.length);
  expect(heard.every(({ freeze, collapse }) => freeze === null && collapse === null)).toBe(true);
});

test('to a collapse: the sandbox expires, and the hook gets known figures only', async () => {
  await using _sandboxes = await expireAll('/collapse');
  for (const name of names) await phase(gateway, idOf(name), 'paused');
  const heard = hookCalls(file);
  expect(heard).toHaveLength(names.length);
  for (const { freeze, collapse } of heard) {
    expect(freeze).toEqual(JSON.parse(STANDS));
    // The members of a freeze are unknown in a collapse.
    expect(collapse === null || Object.keys(collapse).length === 0).toBe(true);
  }
});

test('to an unfreeze: the guest is thawed, or that is tried again', async () => {
  const behaviours = Object.entries(HOSTILE);
  await using sandboxes = new AsyncDisposableStack();
  for (const [name, behaviour] of behaviours) {
    const act: Behaviour = (socket, head) =>
      operationOf(head) === '/unfreeze' ? behaviour(socket, head) : socket.end();
    const sandbox = sandboxes.use(await startRawSandbox(act));
    await gateway.register(idOf(name), sandbox.port, { timeout: 0 });
  }
  const ended = ({ step, msg }: LogLine) => msg === 'a sandbox was thawed' || step === 'thaw';
  for (const name of names) {
    const isIt = (line: LogLine) => line.sandboxID === idOf(name) && ended(line);
    await until(`'${name}' is thawed or has failed`, () => gateway.log.find(isIt));
  }
});

test('a response that never ends and is never too long: the operation times out', async () => {
  const sandbox = await startRawSandbox(
    guest('/freeze', (socket) => {
      socket.write(ENDLESS);
      const drip = setInterval(() => socket.write('1\r\n \r\n'), 50);
      socket.once('close', () => clearInterval(drip));
    }),
  );
  await gateway.register('slow', sandbox.port, { timeout: 0 });
  const [failure] = await until(
    'the expiry has failed',
    () => logged('slow', 'a step of the lifecycle failed'),
    ({ length }) => length > 0,
  );
  expect(failure?.reason).toBe('the daemon did not answer /freeze?maxWaitMs=5000: it took longer than 7 s');
  await sandbox[Symbol.asyncDispose]();
});

test('after a gateway was killed during a response, the next one goes on', async () => {
  const freezes = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  let asked = 0;
  await using sandbox = await startRawSandbox(
    guest('/freeze', (socket, head) => {
      freezes[asked++]?.resolve();
      // The first gateway waits for the rest until it is killed.
      if (asked === 1) socket.write(ENDLESS);
      else HOSTILE['a body of 300 MB']?.(socket, head);
    }),
  );
  await gateway.register('hostile', sandbox.port, { timeout: 0 });
  await freezes[0]?.promise;
  await gateway.kill('SIGKILL');
  await bystander[Symbol.asyncDispose]();
  gateway = await startGateway({ directory: gateway.directory, args: [`--hook=${record(file)}`] });
  bystander = await Bystander.of(gateway);
  await freezes[1]?.promise;
  await until('it has failed', () => logged('hostile', 'a step of the lifecycle failed').length > 0);
});

test('the response of a hook behind a URL is read as far as it is quoted', async () => {
  const hook = await startRawSandbox((socket, head) => {
    const status = /"attempt":1,/.test(head) ? 500 : 200;
    socket.write(`HTTP/1.1 ${status} X\r\ntransfer-encoding: chunked\r\n\r\n`);
    pour(socket, CHUNK);
  });
  await using sandbox = await startRawSandbox(guest('', () => {}));
  await using other = await startGateway({ args: [`--hook=http://127.0.0.1:${hook.port}/`] });
  await other.register('one', sandbox.port, { timeout: 0 });
  await phase(other, 'one', 'paused');
  const isFailure = ({ msg }: LogLine) => msg === 'a step of the lifecycle failed';
  const failure = await until('the failure is told', () => other.log.find(isFailure));
  expect(failure.reason).toBe(`the hook answered 500: ${'1'.repeat(500)}`);
  expect(peakMib(other.pid) - before).toBeLessThan(MEMORY_MIB);
  await hook[Symbol.asyncDispose]();
});
