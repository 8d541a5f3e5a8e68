import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { connect } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import { closing } from '../../support/clients/closing.ts';
import { mountTmpfs } from '../../support/machine/mounts.ts';
import { Bystander } from '../../support/programs/bystander.ts';
import {
  type GatewayOptions,
  startGateway,
  type TestGateway,
  toSandbox,
} from '../../support/programs/gateway.ts';
import { exchange, message, type RawSandbox, startRawSandbox } from '../../support/programs/raw-sandbox.ts';
import { until } from '../../support/until.ts';

const JUMPING = fileURLToPath(new URL('../../support/machine/jumping-clock.ts', import.meta.url));

async function start(options: GatewayOptions = {}): Promise<TestGateway> {
  const gateway = await startGateway(options);
  onTestFinished(() => gateway[Symbol.asyncDispose]());
  return gateway;
}

async function startSandbox(...behaviour: Parameters<typeof startRawSandbox>): Promise<RawSandbox> {
  const sandbox = await startRawSandbox(...behaviour);
  onTestFinished(() => sandbox[Symbol.asyncDispose]());
  return sandbox;
}

test('a head that never ends is given up', async () => {
  const gateway = await start();
  await using bystander = await Bystander.of(gateway);
  const heads = ['', 'GET / HTTP/1.1\r\n', 'GET / HTTP/1.1\r\nhost: a\r\nsvc-sandbox-id: one\r\n'];
  const closed = heads.map(async (head) => {
    const socket = connect(gateway.port, '127.0.0.1').resume();
    socket.on('error', () => {});
    socket.write(head);
    // One byte after the other: the connection is never idle.
    const trickle = setInterval(() => head !== '' && socket.write('x'), 1000);
    await closing(socket);
    clearInterval(trickle);
  });
  await Promise.all(closed);
  await bystander.isServed();
});

test('a sandbox that takes no connection is given up after ten seconds', async () => {
  const listens = "require('net').createServer().listen({ port: 0, host: '127.0.0.1', backlog: 1 }, report)";
  const report = 'function report() { console.log(this.address().port); }';
  const deaf = spawn(process.execPath, ['-e', `${report} ${listens}`], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  onTestFinished(() => {
    deaf.kill('SIGKILL');
  });
  const [line] = await once(deaf.stdout, 'data');
  const port = Number(String(line));
  deaf.kill('SIGSTOP');
  // The kernel takes one more than the backlog, and drops what comes then.
  const taken = Array.from({ length: 2 }, () => connect(port, '127.0.0.1'));
  onTestFinished(() => {
    for (const socket of taken) socket.destroy();
  });
  await Promise.all(taken.map((socket) => once(socket, 'connect')));
  const gateway = await start();
  await gateway.register('deaf', port);
  const response = await fetch(gateway.url, { headers: toSandbox('deaf') });
  expect(await response.json()).toMatchObject({
    ...{ code: 502, sandboxID: 'deaf' },
    message: expect.stringContaining('no connection within 10 s'),
  });
});

test('a sandbox that never responds is given up, also one that takes no more of an upload', async () => {
  const gateway = await start({ args: ['--response-timeout=1'] });
  const silent = await startSandbox(() => {});
  await gateway.register('silent', silent.port);
  const lines = ['host: a', 'svc-sandbox-id: silent', 'connection: close'];
  const answer = await exchange(gateway.port, message(['GET / HTTP/1.1', ...lines]));
  expect(answer).toMatch(/^HTTP\/1\.1 502 .*no response within 1 s/s);
  const upgrade = message([
    'GET / HTTP/1.1',
    ...lines.slice(0, 2),
    'connection: upgrade',
    'upgrade: websocket',
  ]);
  expect(await exchange(gateway.port, upgrade)).toMatch(/^HTTP\/1\.1 502 .*no response within 1 s/s);
  const stalled = await startSandbox((socket) => socket.pause());
  await gateway.register('stalled', stalled.port);
  const body = 'a'.repeat(20_000_000);
  const response = await fetch(gateway.url, { method: 'POST', headers: toSandbox('stalled'), body });
  expect(await response.json()).toMatchObject({ code: 502, sandboxID: 'stalled' });
});

test('a client that uploads slowly, and a stream that is silent, are not given up', async () => {
  const gateway = await start({ args: ['--response-timeout=1'] });
  const sandbox = await startSandbox((socket, head) => {
    if (head.startsWith('GET')) socket.write('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\no');
    // Time itself is tested: more than twice the limit.
    if (head.startsWith('GET')) setTimeout(() => socket.end('k'), 2500);
    if (head.includes('end of the body')) socket.end('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok');
  });
  await gateway.register('one', sandbox.port);
  const stream = fetch(gateway.url, { headers: toSandbox('one') }).then((response) => response.text());
  const socket = connect(gateway.port, '127.0.0.1');
  socket.write(message(['POST / HTTP/1.1', 'host: a', 'svc-sandbox-id: one', 'content-length: 19']));
  expect(await stream).toBe('ok');
  socket.write('end of the body\r\n\r\n');
  expect(String((await once(socket, 'data'))[0])).toMatch(/^HTTP\/1\.1 200 /);
  socket.destroy();
});

test('an upload that is aborted is aborted at the sandbox, too', async () => {
  const gateway = await start();
  const seen = Promise.withResolvers<void>();
  const aborted = Promise.withResolvers<void>();
  const sandbox = await startSandbox((socket) => {
    socket.once('close', () => aborted.resolve());
    seen.resolve();
  });
  await gateway.register('one', sandbox.port);
  const socket = connect(gateway.port, '127.0.0.1');
  socket.write(
    message(['POST / HTTP/1.1', 'host: a', 'svc-sandbox-id: one', 'content-length: 1000'], 'part'),
  );
  await seen.promise;
  socket.destroy();
  await expect(aborted.promise).resolves.toBeUndefined();
});

test('at SIGTERM health turns, and requests are served until the end of the drain', async () => {
  const gateway = await start({ args: ['--drain=5'] });
  let finish = () => {};
  const sandbox = await startSandbox((socket, head) => {
    const end = () => socket.end('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok');
    if (head.startsWith('GET /slow')) finish = end;
    else end();
  });
  await gateway.register('one', sandbox.port);
  const slow = fetch(`${gateway.url}/slow`, { headers: toSandbox('one') });
  await until('it is in flight', () => finish.name === 'end');
  const ended = gateway.kill('SIGTERM');
  const health = message(['GET /gateway/health HTTP/1.1', 'host: a', 'connection: close']);
  await until('health turns', async () => (await exchange(gateway.port, health)).startsWith('HTTP/1.1 503 '));
  const next = await exchange(gateway.port, message(['GET / HTTP/1.1', 'host: a', 'svc-sandbox-id: one']));
  expect(next).toMatch(/^HTTP\/1\.1 200 OK\r\n(.*\r\n)?connection: close\r\n/is);
  finish();
  expect(await (await slow).text()).toBe('ok');
  await ended;
  expect(await gateway.exited).toEqual({ code: 0, signal: null });
});

test('a clock that jumps expires no sandbox', async () => {
  const gateway = await start({ flags: [`--import=${JUMPING}`] });
  const sandbox = await startSandbox((socket) => socket.end('HTTP/1.1 204 No Content\r\n\r\n'));
  await gateway.register('one', sandbox.port, { timeout: 600 });
  process.kill(gateway.pid, 'SIGUSR2');
  await until('the clock has jumped', () =>
    gateway.call('GET /nothing').then(() => logTime(gateway) > Date.now() + 3e6),
  );
  expect((await fetch(gateway.url, { headers: toSandbox('one') })).status).toBe(204);
  await gateway.register('two', sandbox.port, { timeout: 600 });
  const { body } = await gateway.call('GET /sandboxes');
  expect(body.map(({ phase }: { phase: string }) => phase)).toEqual(['running', 'running']);
});

/** The time of the last line of its log. */
const logTime = ({ log }: TestGateway) => Number(log.at(-1)?.time ?? 0);

test('a full disk is told, and nothing is lost when there is room again', async () => {
  const directory = mountTmpfs('1m');
  const gateway = await start({ directory });
  await gateway.register('one', 1, { timeout: 600 });
  const filled = join(directory, 'filled');
  spawnSync('dd', ['if=/dev/zero', `of=${filled}`, 'bs=4096']);
  const metadata = { big: 'x'.repeat(16_000) };
  const wanted = { sandboxID: 'two', address: '127.0.0.1', metadata };
  const { status, body } = await gateway.call('POST /sandboxes', wanted);
  expect([status, body]).toEqual([
    507,
    { code: 507, message: 'the registry cannot be written: its disk is full, free some space' },
  ]);
  expect((await gateway.call('GET /sandboxes/one')).status).toBe(200);
  expect((await gateway.call('GET /sandboxes/two')).status).toBe(404);
  spawnSync('rm', [filled]);
  expect((await gateway.call('POST /sandboxes', wanted)).status).toBe(201);
});

test('a gateway without a hook says that it pauses nothing', async () => {
  const gateway = await start();
  expect(gateway.log.map(({ msg }) => String(msg))).toContainEqual(
    expect.stringMatching(/^no --hook is set: /),
  );
});
