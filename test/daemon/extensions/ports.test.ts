import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { createInterface } from 'node:readline';
import { Readable } from 'node:stream';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { TestSocket } from '../../support/clients/websocket.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { freePort } from '../../support/servers/free-port.ts';

/* GET /ports/stream, POST /ports/{port}/wait, and the WebSocket GET /ports/{port}/tunnel. */

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(() => daemon[Symbol.asyncDispose]());

async function listen(
  serve: (socket: Socket) => void = () => {},
  host = '127.0.0.1',
  port = 0,
): Promise<Server> {
  const sockets = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.add(socket.on('error', () => {}));
    serve(socket);
  });
  server.listen({ host, port });
  await once(server, 'listening');
  onTestFinished(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return server;
}

const portOf = (server: Server) => (server.address() as AddressInfo).port;
const tunnel = (port: number | string, options = {}) =>
  TestSocket.open(daemon.url, `/ports/${port}/tunnel`, { protocols: ['envd.tunnel'], ...options });

/** The messages of a stream, and a function that waits for one. */
async function follow(accept = 'application/x-ndjson') {
  const response = await fetch(`${daemon.url}/ports/stream`, { headers: { accept } });
  expect([response.status, response.headers.get('content-type')]).toEqual([200, accept]);
  if (!response.body) throw new Error('no body');
  const lines = createInterface(Readable.fromWeb(response.body))[Symbol.asyncIterator]();
  return async (wanted: (line: Record<string, unknown>) => boolean) => {
    for (;;) {
      const { value, done } = await lines.next();
      if (done) throw new Error('the stream has ended');
      const json = value.replace(/^data: /, '');
      if (json === '') continue;
      const line = JSON.parse(json);
      if (wanted(line)) return line;
    }
  };
}

describe('the stream', () => {
  test.each(['application/x-ndjson', 'text/event-stream'])(
    'as %s tells what is there, appears and disappears, with pid, user and command',
    async (accept) => {
      const present = portOf(await listen());
      const next = await follow(accept);
      expect(await next(({ port }) => port === present)).toMatchObject({ type: 'appear', pid: process.pid });
      const port = await freePort();
      const script = `const s = require('net').createServer().listen(${port}, '::1'); process.stdin.on('end', () => s.close()).resume()`;
      const child = spawn(process.execPath, ['-e', script], { stdio: ['pipe', 'ignore', 'inherit'] });
      onTestFinished(() => void child.kill());
      const told = {
        port,
        address: '::1',
        pid: child.pid,
        user: 'root',
        command: expect.stringMatching(/^(node|envd|MainThread)/),
      };
      expect(await next((line) => line.port === port)).toEqual({ type: 'appear', ...told });
      child.stdin?.end();
      expect(await next((line) => line.port === port)).toEqual({ type: 'disappear', ...told });
    },
  );

  test('tells the port of the daemon, which listens at one address', async () => {
    const next = await follow();
    expect(await next(({ port }) => port === daemon.port)).toMatchObject({
      ...{ address: '127.0.0.1', pid: daemon.pid },
    });
  });

  test('has a head, and ends when the daemon stops', async () => {
    await using stopped = await startDaemon();
    const head = await fetch(`${stopped.url}/ports/stream`, { method: 'HEAD' });
    expect([head.status, head.headers.get('content-type')]).toEqual([200, 'application/x-ndjson']);
    const response = await fetch(`${stopped.url}/ports/stream`);
    const ended = response.text();
    expect(await stopped.stop()).toBe(0);
    expect(await ended).toMatch(/^(\{"type":"(dis)?appear",.*\}\n)*$/);
  });
});

describe('a wait', () => {
  const wait = async (port: number | string, query = '') => {
    const response = await fetch(`${daemon.url}/ports/${port}/wait${query}`, { method: 'POST' });
    return { status: response.status, body: (await response.json()) as Record<string, unknown> };
  };

  test('answers at once for a port that is listened at', async () => {
    const port = portOf(await listen(() => {}, '0.0.0.0'));
    const { status, body } = await wait(port);
    expect([status, body]).toEqual([
      200,
      { port, address: '*', pid: process.pid, user: expect.any(String), command: expect.any(String) },
    ]);
  });

  test('answers when something listens', async () => {
    const port = await freePort();
    const waiting = wait(port, '?timeoutMs=20000');
    const early = Promise.race([waiting, new Promise((resolve) => setTimeout(resolve, 500, 'waits'))]);
    // It is time itself that is tested here: nothing has happened by then.
    expect(await early).toBe('waits');
    await listen(() => {}, '127.0.0.1', port);
    expect(await waiting).toMatchObject({ status: 200, body: { port, address: '127.0.0.1' } });
  });

  test('ends at its time limit', async () => {
    const port = await freePort();
    expect(await wait(port, '?timeoutMs=100')).toEqual({
      status: 504,
      body: { code: 504, message: `nothing listens at port ${port} of localhost after 100 ms` },
    });
  });

  test.each(['0', '65536', 'x', '-1', '1.5', '999999'])('for the port %s is refused', async (port) => {
    expect((await wait(port)).status).toBe(400);
  });

  test('with a wrong limit or method is refused', async () => {
    expect((await wait(1, '?timeoutMs=x')).status).toBe(400);
    const response = await fetch(`${daemon.url}/ports/1/wait`);
    expect([response.status, response.headers.get('allow')]).toEqual([405, 'POST']);
  });
});

describe('a tunnel', () => {
  test.each(['127.0.0.1', '::1', '0.0.0.0'])('carries bytes to a listener at %s and back', async (host) => {
    const port = portOf(await listen((socket) => socket.pipe(socket), host));
    const socket = await tunnel(port);
    expect(socket.socket.protocol).toBe('envd.tunnel');
    socket.send(Buffer.from('bytes\0\xff', 'latin1'));
    socket.send('text');
    await socket.shows(/text$/);
    expect(socket.bytes.toString('latin1')).toBe('bytes\0\xfftext');
  });

  test('carries much in both directions, unchanged', async () => {
    const port = portOf(await listen((socket) => socket.pipe(socket)));
    const socket = await tunnel(port);
    const pieces = Array.from({ length: 200 }, (_, index) => Buffer.alloc(100_000, index));
    for (const piece of pieces) socket.send(piece);
    const whole = Buffer.concat(pieces);
    const { promise, resolve } = Promise.withResolvers<void>();
    let length = 0;
    socket.socket.on('message', (data: Buffer) => {
      length += data.length;
      if (length >= whole.length) resolve();
    });
    await promise;
    expect(socket.bytes.equals(whole)).toBe(true);
  });

  test('ends with the connection, after its last bytes', async () => {
    const port = portOf(await listen((socket) => void socket.end(Buffer.alloc(1_000_000, 'x'))));
    const socket = await tunnel(port);
    expect((await socket.closed).code).toBe(1005);
    expect(socket.bytes.length).toBe(1_000_000);
  });

  test('has an end of what the client sends, and the answer still comes', async () => {
    const serve = (socket: Socket) => {
      const pieces: Buffer[] = [];
      socket.on('data', (piece: Buffer) => pieces.push(piece));
      socket.on('end', () => socket.end(`${Buffer.concat(pieces)}, and an answer`));
    };
    const socket = await tunnel(portOf(await listen(serve)));
    socket.send(Buffer.from('a question'));
    socket.send(Buffer.alloc(0));
    await socket.closed;
    expect(socket.text).toBe('a question, and an answer');
  });

  test('ends the connection with the WebSocket, even if the other side says nothing', async () => {
    const { promise, resolve } = Promise.withResolvers<string>();
    const port = portOf(await listen((socket) => void socket.on('end', () => resolve('ended')).resume()));
    const socket = await tunnel(port);
    socket.send(Buffer.from('x'));
    socket.socket.close();
    expect(await promise).toBe('ended');
  });

  test('tells that the connection was broken', async () => {
    const port = portOf(await listen((socket) => socket.once('data', () => socket.resetAndDestroy())));
    const socket = await tunnel(port);
    socket.send(Buffer.from('x'));
    expect(await socket.closed).toMatchObject({ code: 4409, reason: expect.stringContaining('ECONNRESET') });
  });

  test('to nothing, to no port and to the daemon itself is closed', async () => {
    const port = await freePort();
    expect(await (await tunnel(port)).closed).toEqual({
      ...{ code: 4404, reason: `nothing listens at port ${port} of localhost` },
    });
    for (const wrong of ['0', '65536', 'x']) expect((await (await tunnel(wrong)).closed).code).toBe(4400);
    expect((await (await tunnel(daemon.port)).closed).code).toBe(4403);
    expect((await (await tunnel(`0${daemon.port}`)).closed).code).toBe(daemon.port < 10_000 ? 4403 : 4400);
  });

  test('is closed with 1012 when the daemon stops', async () => {
    await using stopped = await startDaemon();
    const port = portOf(await listen((socket) => socket.pipe(socket)));
    const socket = await TestSocket.open(stopped.url, `/ports/${port}/tunnel`);
    socket.send(Buffer.from('x'));
    await socket.shows(/x/);
    expect(await stopped.stop()).toBe(0);
    expect(await socket.closed).toMatchObject({ code: 1012 });
  });
});
