import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { networkInterfaces } from 'node:os';
import { describe, expect, onTestFinished, test } from 'vitest';
import { Addresses, readRange } from '../../../src/gateway/access/addresses.ts';
import { API_KEY, startGateway, type TestGateway, toSandbox } from '../../support/programs/gateway.ts';
import { exchange, message } from '../../support/programs/raw-sandbox.ts';
import { startRedis } from '../../support/servers/redis-server.ts';

/** A server that keeps what it is asked. */
async function startServer(): Promise<{ readonly port: number; readonly seen: IncomingMessage[] }> {
  const seen: IncomingMessage[] = [];
  const server = createServer((request, response) => {
    seen.push(request);
    response.end('reached');
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { port: (server.address() as AddressInfo).port, seen };
}

async function start(args: readonly string[] = [], anywhere = true): Promise<TestGateway> {
  const gateway = await startGateway({ args, anywhere });
  onTestFinished(() => gateway[Symbol.asyncDispose]());
  return gateway;
}

const call = (gateway: TestGateway, path: string, headers: Readonly<Record<string, string>>) =>
  fetch(`${gateway.url}${path}`, { method: 'POST', headers });

const SPELLINGS = ['127.0.0.1', '::ffff:127.0.0.1', '::ffff:7f00:1', 'localhost'];

describe.each(['embedded', 'redis'])('sandboxes that share an address, with the registry %s', (kind) => {
  async function withRegistry(): Promise<TestGateway> {
    if (kind === 'embedded') return start();
    const redis = await startRedis();
    onTestFinished(() => redis[Symbol.asyncDispose]());
    return start([`--redis=${redis.url}`]);
  }

  test.each(SPELLINGS)("the port header does not open another's daemon: %s", async (address) => {
    const gateway = await withRegistry();
    const [mine, victim, web] = [await startServer(), await startServer(), await startServer()];
    await gateway.register('mine', mine.port, { address, timeout: 60 });
    for (const other of SPELLINGS) {
      await gateway.register('victim', victim.port, { address: other, timeout: 60 });
      for (const path of ['/init', '/%69nit', '/files', '/health']) {
        const answer = await call(gateway, path, toSandbox('mine', victim.port));
        expect(await answer.json()).toEqual({
          ...{ sandboxID: 'mine', code: 403 },
          message: `port ${victim.port} is not open to clients`,
        });
      }
    }
    expect(victim.seen).toHaveLength(0);
    // Other ports are open.
    expect((await call(gateway, '/', toSandbox('mine', web.port))).status).toBe(200);
  });

  test.each(SPELLINGS)(
    'a daemon whose record is gone stays closed, because it may run on: %s',
    async (address) => {
      const gateway = await withRegistry();
      const [mine, removed, moved, expired] = [
        await startServer(),
        await startServer(),
        await startServer(),
        await startServer(),
      ];
      const ports = [removed.port, moved.port, expired.port];
      await gateway.register('mine', mine.port, { address, timeout: 60 });
      await gateway.register('removed', removed.port, { address: '127.0.0.1', timeout: 60 });
      await gateway.call('DELETE /sandboxes/removed');
      await gateway.register('moved', moved.port, { address: '127.0.0.1', timeout: 60 });
      await gateway.register('moved', mine.port + 1, { address: '127.0.0.2', timeout: 60 });
      await gateway.register('expired', expired.port, {
        address: '127.0.0.1',
        timeout: 0,
        onExpiry: 'remove',
      });
      await expect.poll(async () => (await gateway.call('GET /sandboxes/expired')).status).toBe(404);
      const asked = expired.seen.length;
      const freeze = (port: number) => call(gateway, '/freeze', toSandbox('mine', port));
      for (const port of ports) expect([port, (await freeze(port)).status]).toEqual([port, 403]);
      expect([removed.seen, moved.seen, expired.seen.slice(asked)]).toEqual([[], [], []]);
      // It is reached again by a registration of its own.
      await gateway.register('again', removed.port, { address, timeout: 60 });
      expect((await call(gateway, '/', toSandbox('again'))).status).toBe(200);
    },
  );
});

test('a daemon whose record is gone stays closed after the gateway has been started again', async () => {
  const [mine, victim] = [await startServer(), await startServer()];
  const first = await startGateway();
  onTestFinished(() => first[Symbol.asyncDispose]());
  await first.register('mine', mine.port);
  await first.register('victim', victim.port);
  await first.call('DELETE /sandboxes/victim');
  await first.kill();
  const gateway = await startGateway({ directory: first.directory });
  onTestFinished(() => gateway[Symbol.asyncDispose]());
  expect((await call(gateway, '/init', toSandbox('mine', victim.port))).status).toBe(403);
  expect(victim.seen).toHaveLength(0);
});

test('an upgrade to the daemon of another sandbox is refused, too', async () => {
  const gateway = await start();
  const [mine, victim] = [await startServer(), await startServer()];
  await gateway.register('mine', mine.port);
  await gateway.register('victim', victim.port);
  const lines = ['GET /init HTTP/1.1', 'host: a', 'svc-sandbox-id: mine', `svc-sandbox-port: ${victim.port}`];
  const upgrade = message([...lines, 'connection: upgrade', 'upgrade: websocket']);
  expect(await exchange(gateway.port, upgrade)).toMatch(/^HTTP\/1\.1 403 /);
  expect(victim.seen).toHaveLength(0);
});

test('ports that are not allowed are closed; the daemon is open', async () => {
  const server = await startServer();
  const gateway = await start(['--allow-ports=80,3000-3999']);
  await gateway.register('one', server.port);
  const statusOf = async (port?: number) => (await call(gateway, '/', toSandbox('one', port))).status;
  expect(await statusOf()).toBe(200);
  expect(await statusOf(49983)).toBe(200);
  for (const port of [1, 79, 81, 2999, 4000, 65535]) expect(await statusOf(port)).toBe(403);
});

const OWN = Object.values(networkInterfaces())
  .flatMap((each) => each ?? [])
  .map(({ address }) => address);

test.each([
  ...['127.0.0.1', '127.9.9.9', '0.0.0.0', '169.254.169.254', '224.0.0.1', '255.255.255.255'],
  ...['::1', '::', '0:0:0:0:0:0:0:1', 'fe80::1', 'ff02::1', '::ffff:127.0.0.1', '::ffff:a9fe:a9fe'],
  ...['64:ff9b::7f00:1', ...OWN],
])('the address %s is refused by default', async (address) => {
  const gateway = await start([], false);
  const { status, body } = await gateway.call('POST /sandboxes', { sandboxID: 'one', address });
  expect(status).toBe(400);
  expect(body.message).toMatch(/does not connect to the address .*: --allow-addresses/);
});

test.each(['localhost', '127.1', '0x7f000001', '2130706433', '0', '017700000001'])(
  'the name %s, which is resolved to such an address, is refused when it is used',
  async (address) => {
    const server = await startServer();
    const gateway = await start([], false);
    await gateway.register('one', server.port, { address, timeout: 60 });
    const answer = await call(gateway, '/', toSandbox('one'));
    expect(answer.status).toBe(502);
    expect(await answer.text()).toMatch(/does not connect to the address|cannot be resolved/);
    expect(server.seen).toHaveLength(0);
  },
);

test('a record made while the address was allowed is refused afterwards, also when the sandbox expires', async () => {
  const server = await startServer();
  const first = await startGateway();
  onTestFinished(() => first[Symbol.asyncDispose]());
  await first.register('one', server.port, { timeout: 0, onExpiry: 'remove' });
  await first.register('two', server.port, { timeout: 60 });
  await first.kill();
  const before = server.seen.length;
  const gateway = await startGateway({ directory: first.directory, anywhere: false });
  onTestFinished(() => gateway[Symbol.asyncDispose]());
  expect((await call(gateway, '/', toSandbox('two'))).status).toBe(502);
  await expect.poll(async () => (await gateway.call('GET /sandboxes/one')).status).toBe(404);
  expect(server.seen).toHaveLength(before);
});

test('an own address is in no range; it is allowed by itself', () => {
  const own = OWN.find((address) => !address.includes(':') && !address.startsWith('127.'));
  if (!own) return expect(OWN).not.toHaveLength(0);
  const allowing = (...texts: readonly string[]) =>
    new Addresses({ allowAddresses: texts.flatMap((text) => readRange(text) ?? []), allowPorts: [] });
  expect(() => allowing('0.0.0.0/0').admit(own)).toThrow(/does not connect/);
  expect(allowing('0.0.0.0/0', own).admit(own)).toEqual({ address: own, ip: own });
});

test('only the platform reaches closed operations, and its key goes no further', async () => {
  const server = await startServer();
  const gateway = await start();
  await gateway.register('one', server.port);
  for (const path of ['/init', '/%69nit', '//freeze']) {
    expect((await call(gateway, path, { ...toSandbox('one'), 'x-api-key': `${API_KEY}x` })).status).toBe(403);
    expect((await call(gateway, path, { ...toSandbox('one'), 'x-api-key': API_KEY })).status).toBe(200);
  }
  expect(server.seen.map(({ url }) => url)).toEqual(['/init', '/%69nit', '//freeze']);
  for (const { headers } of server.seen) expect(headers).not.toHaveProperty('x-api-key');
  const twice = ['POST /init HTTP/1.1', 'host: a', 'svc-sandbox-id: one', 'connection: close'];
  const keys = [`x-api-key: ${API_KEY}`, 'x-api-key: other'];
  expect(await exchange(gateway.port, message([...twice, ...keys]))).toMatch(/^HTTP\/1\.1 403 /);
});
