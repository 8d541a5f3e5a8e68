import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { closing } from '../support/clients/closing.ts';
import { startGateway, type TestGateway, toSandbox } from '../support/programs/gateway.ts';

let gateway: TestGateway;
const server = createServer((request, response) =>
  response.end(`plain ${request.headers.upgrade ?? 'none'}`),
);
const port = () => (server.address() as AddressInfo).port;

beforeAll(async () => {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  gateway = await startGateway();
  await gateway.register('one', 1);
});

afterAll(async () => {
  server.closeAllConnections();
  server.close();
  await gateway[Symbol.asyncDispose]();
});

function acceptOnce(onSocket: (socket: Socket, request: IncomingMessage) => void): void {
  server.once('upgrade', (request, socket) => {
    const accept = createHash('sha1')
      .update(`${request.headers['sec-websocket-key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`)
      .digest('base64');
    const lines = ['HTTP/1.1 101 Switching Protocols', 'upgrade: websocket', 'connection: upgrade'];
    socket.write(`${lines.join('\r\n')}\r\nsec-websocket-accept: ${accept}\r\n\r\n`);
    onSocket(socket as Socket, request);
  });
}

const handshake = (id: string, at: number) =>
  [
    'GET /chat?a=b HTTP/1.1',
    'host: a',
    `svc-sandbox-id: ${id}`,
    `svc-sandbox-port: ${at}`,
    'connection: Upgrade',
    'upgrade: websocket',
    'sec-websocket-version: 13',
    'sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==',
    '\r\n',
  ].join('\r\n');

/** Opens a connection through the gateway and waits for the head of the first response. */
async function open(id = 'one', at = port()): Promise<{ readonly socket: Socket; readonly answer: string }> {
  const socket = connect(gateway.port, '127.0.0.1');
  socket.write(handshake(id, at));
  let answer = '';
  while (!answer.includes('\r\n\r\n')) answer += (await once(socket, 'data'))[0];
  return { socket, answer };
}

test('after the handshake bytes are forwarded in both directions', async () => {
  acceptOnce((socket, { url }) => {
    socket.once('data', (data) => socket.write(`${url} heard ${data}`));
  });
  const { socket, answer } = await open();
  expect(answer).toMatch(/^HTTP\/1\.1 101 /);
  expect(answer).toContain('s3pPLMBiTxaQ9kYGzzhZRbK+xOo=');
  socket.write('hello');
  expect(String((await once(socket, 'data'))[0])).toBe('/chat?a=b heard hello');
  socket.destroy();
});

test('each side is closed when the other one closes', async () => {
  const inner = Promise.withResolvers<Socket>();
  acceptOnce(inner.resolve);
  const first = await open();
  const ended = once((await inner.promise).resume(), 'end');
  first.socket.resetAndDestroy();
  await expect(ended).resolves.toEqual([]);

  acceptOnce((socket) => socket.once('data', () => socket.destroy()));
  const second = await open();
  second.socket.write('go');
  await expect(once(second.socket.resume(), 'close')).resolves.toEqual([false]);
});

test('a WebSocket is closed when its sandbox is removed', async () => {
  await gateway.register('short', 1);
  acceptOnce((socket) => socket.resume());
  const { socket } = await open('short');
  const closed = closing(socket.resume());
  expect((await gateway.call('DELETE /sandboxes/short')).status).toBe(204);
  await closed;
});

test('the response of a server that refuses the upgrade is forwarded', async () => {
  server.once('upgrade', (_request, socket) =>
    socket.end('HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno'),
  );
  const { answer, socket } = await open();
  expect(answer).toMatch(/^HTTP\/1\.1 403 Forbidden/);
  socket.destroy();
});

test('an unknown or unreachable sandbox is 502', async () => {
  for (const [id, at] of [
    ['nobody', port()],
    ['one', 1],
  ] as const) {
    const { answer, socket } = await open(id, at);
    expect(answer).toMatch(/^HTTP\/1\.1 502 /);
    socket.destroy();
  }
});

test('an upgrade to another protocol is ignored', async () => {
  const socket = connect(gateway.port, '127.0.0.1');
  const lines = ['GET / HTTP/1.1', 'host: a', 'svc-sandbox-id: one', `svc-sandbox-port: ${port()}`];
  socket.write(`${[...lines, 'connection: upgrade, close', 'upgrade: h2c'].join('\r\n')}\r\n\r\n`);
  const pieces: string[] = [];
  socket.on('data', (data) => pieces.push(String(data)));
  await closing(socket);
  expect(pieces.join('')).toContain('plain none');
});

test("Node's WebSocket client connects", async () => {
  acceptOnce((socket) => socket.resume());
  const socket = new WebSocket(`${gateway.url.replace('http', 'ws')}/`, {
    headers: toSandbox('one', port()),
  } as unknown as string[]);
  await once(socket, 'open');
  expect(socket.readyState).toBe(WebSocket.OPEN);
  socket.close();
});
