import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { startDaemon, type TestDaemon } from '../support/programs/daemon.ts';
import { envctl, envctlUntil } from '../support/programs/envctl.ts';
import { owned } from '../support/programs/owned.ts';
import { freePort } from '../support/servers/free-port.ts';
import { startStubDaemon } from '../support/servers/stub-daemon.ts';

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(() => daemon?.[Symbol.asyncDispose]());

async function listen(serve: (socket: Socket) => void): Promise<number> {
  const server: Server = createServer({ allowHalfOpen: true }, (socket) =>
    serve(socket.on('error', () => {})),
  );
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  return (server.address() as AddressInfo).port;
}

/** Answers when the whole question has come. */
function answer(socket: Socket, make: (question: string) => string): void {
  const pieces: Buffer[] = [];
  socket.on('data', (piece: Buffer) => pieces.push(piece));
  socket.on('end', () => socket.end(make(Buffer.concat(pieces).toString())));
}

/** Forwards to a port; returns the local one. */
async function forward(remote: number, ...args: string[]) {
  const running = await envctlUntil(daemon.url, ['forward', `0:${remote}`, ...args], /-> \d+\n/);
  const port = Number(/:(\d+) -> /.exec(running.stdout())?.[1]);
  return { running, port };
}

test('forward carries connections both ways, with the end of one direction', async () => {
  const remote = await listen((socket) => answer(socket, (question) => `${question}, answered`));
  const { port } = await forward(remote);
  for (let count = 0; count < 3; count++) {
    const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
    socket.end(`question ${count}`);
    expect(await text(socket)).toBe(`question ${count}, answered`);
  }
});

test('forward carries much unchanged', async () => {
  const remote = await listen((socket) => void socket.pipe(socket));
  const { port } = await forward(remote);
  const socket = connect({ port, host: '127.0.0.1' });
  const sent = Buffer.alloc(5_000_000, 'envd');
  const got: Buffer[] = [];
  socket.on('data', (piece: Buffer) => got.push(piece)).end(sent);
  await once(socket, 'close');
  expect(Buffer.concat(got).equals(sent)).toBe(true);
});

test('forward tells that nothing listens, resets the connection, and goes on', async () => {
  const { running, port } = await forward(await freePort());
  for (let count = 0; count < 2; count++) {
    const socket = connect(port, '127.0.0.1');
    const [error] = await once(socket, 'error');
    expect(error.code).toBe('ECONNRESET');
  }
  await expect
    .poll(() => running.stderr())
    .toMatch(/^(warning: port \d+: nothing listens at port \d+ of localhost\n){2}$/);
});

test('forward --stdio is the connection', async () => {
  const remote = await listen((socket) => answer(socket, (question) => question.toUpperCase()));
  expect(await envctl(daemon.url, ['forward', '--stdio', String(remote)], { input: 'roses' })).toMatchObject({
    ...{ code: 0, stdout: 'ROSES' },
  });
  const none = await freePort();
  expect(await envctl(daemon.url, ['forward', '--stdio', String(none)], { input: '' })).toMatchObject({
    ...{ code: 123, stderr: `envctl: nothing listens at port ${none} of localhost\n` },
  });
});

test.each([['x'], ['0'], ['70000'], ['1:2:3:4'], ['1:0'], ['--stdio', '1:2'], ['--stdio', '1', '2']])(
  'forward %s %s is a wrong command line',
  async (...args) => {
    expect(await envctl(daemon.url, ['forward', ...args])).toMatchObject({ code: 120, stdout: '' });
  },
);

test('ports --watch tells what appears and disappears', async () => {
  const port = await freePort();
  const running = await envctlUntil(
    daemon.url,
    ['ports', '--watch', '--json'],
    new RegExp(`"port":${daemon.port},`),
  );
  const server = createServer().listen(port, '127.0.0.1');
  await once(server, 'listening');
  const seen = (type: string) =>
    expect.poll(() => running.stdout()).toMatch(new RegExp(`"type":"${type}","port":${port},`));
  await seen('appear');
  server.close();
  await seen('disappear');
});

test('a daemon without tunnels does not offer them', async () => {
  const stub = await owned(startStubDaemon());
  expect(await envctl(stub.url, ['forward', '1'])).toMatchObject({
    ...{ code: 125, stderr: expect.stringContaining('does not offer tunnels') },
  });
  expect((await envctl(stub.url, ['ports', '--watch'])).code).not.toBe(0);
});

test('a wrong token is told', async () => {
  const guarded = await owned(startDaemon());
  await fetch(`${guarded.url}/init`, { method: 'POST', body: JSON.stringify({ accessToken: 'secret' }) });
  const { code, stderr } = await envctl(guarded.url, ['forward', '--stdio', '1'], { input: '' });
  expect([code, stderr]).toEqual([122, expect.stringContaining('unauthorized access')]);
});
