import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import {
  type AddressInfo,
  connect,
  createServer as createTcpServer,
  type Server as TcpServer,
} from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startGateway, type TestGateway, toSandbox } from '../../support/programs/gateway.ts';
import { type Nginx, startNginx } from '../../support/servers/nginx.ts';
import { until } from '../../support/until.ts';

/** The longest that a connection to a sandbox is used, and is idle after that; in ms. */
const BOUND_MS = 2000;

let gateway: TestGateway;
let nginx: Nginx;
const servers: (Server | TcpServer)[] = [];

async function listening<S extends Server | TcpServer>(server: S): Promise<number> {
  servers.push(server);
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return (server.address() as AddressInfo).port;
}

/** A sandbox that answers with its name. */
async function service(name: string) {
  const seen = { connections: 0 };
  const server = createServer((request, response) => {
    request.resume().on('end', () => response.end(name));
  });
  server.on('connection', () => seen.connections++);
  return { port: await listening(server), seen };
}

beforeAll(async () => {
  gateway = await startGateway();
  nginx = await startNginx(gateway.port, { keeps: true });
});

afterAll(async () => {
  await nginx?.[Symbol.asyncDispose]();
  await gateway[Symbol.asyncDispose]();
  for (const server of servers) if ('closeAllConnections' in server) server.closeAllConnections();
  for (const server of servers) server.close();
});

async function reach(id: string, init: RequestInit = {}): Promise<string> {
  const response = await fetch(`http://127.0.0.1:${nginx.port}/a/b`, { headers: toSandbox(id), ...init });
  const text = await response.text();
  return response.ok ? text : String(response.status);
}

test('connections to sandboxes are kept, each for its own', async () => {
  const [one, two] = [await service('one'), await service('two')];
  await gateway.register('one', one.port, { timeout: 600 });
  await gateway.register('two', two.port, { timeout: 600 });
  const started = performance.now();
  for (let index = 0; index < 100; index++) {
    expect(await reach('one', { method: 'POST', body: 'x' })).toBe('one');
    expect(await reach('two')).toBe('two');
  }
  const most = 3 + (2 * (performance.now() - started)) / 1000;
  for (const { seen } of [one, two]) expect(seen.connections).toBeLessThan(most);
});

test('an IPv6 address is connected to', async () => {
  const server = createServer((_request, response) => response.end('six'));
  servers.push(server);
  await once(server.listen(0, '::1'), 'listening');
  await gateway.register('six', (server.address() as AddressInfo).port, { timeout: 600, address: '::1' });
  expect(await reach('six')).toBe('six');
});

test('an address that becomes another sandbox is reached as that in time, under load, too', async () => {
  const [first, second] = [await service('first'), await service('second')];
  // As a NAT does, which leaves connections where they are when it is changed.
  let to = first.port;
  const nat = await listening(
    createTcpServer((socket) => {
      const inner = connect(to, '127.0.0.1');
      socket.pipe(inner).pipe(socket);
      for (const each of [socket, inner]) each.on('error', () => {});
    }),
  );
  await gateway.register('before', nat, { timeout: 600 });
  expect(await reach('before')).toBe('first');
  await gateway.call('DELETE /sandboxes/before');
  to = second.port;
  const changed = performance.now();
  await gateway.register('after', nat, { timeout: 600 });
  let wrong = changed;
  while (performance.now() < changed + BOUND_MS + 1000) {
    const began = performance.now();
    if ((await reach('after')) !== 'second') wrong = began;
  }
  expect(wrong - changed).toBeLessThan(BOUND_MS);
});

test('a sandbox that closes its connections answers the next request; one that has gone is 502', async () => {
  const brief = await service('brief');
  await gateway.register('brief', brief.port, { timeout: 600 });
  expect(await reach('brief')).toBe('brief');
  const server = servers.at(-1) as Server;
  server.closeIdleConnections();
  await until('it is answered again', async () => (await reach('brief')) === 'brief');
  server.closeAllConnections();
  server.close();
  await until('it is refused', async () => (await reach('brief')) === '502');
});
