import { once } from 'node:events';
import { createServer } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { join } from 'node:path';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import { scratch } from '../support/machine/scratch.ts';
import { startGateway, type TestGateway, toSandbox } from '../support/programs/gateway.ts';
import { startGuests } from '../support/programs/guests.ts';
import { hookCalls, phase, record } from '../support/servers/hook.ts';
import { type RedisServer, startRedis } from '../support/servers/redis-server.ts';
import { until } from '../support/until.ts';

let redis: RedisServer;

beforeEach(async () => {
  redis = await startRedis();
  onTestFinished(() => redis[Symbol.asyncDispose]());
});

/** Two gateways with one registry and, as on one host, one hook directory. */
async function startBoth(hook: string): Promise<readonly [TestGateway, TestGateway]> {
  const directory = scratch();
  const start = () => startGateway({ directory, args: [`--redis=${redis.url}`, `--hook=${hook}`] });
  return Promise.all([start(), start()]);
}

const health = (gateway: TestGateway, id: string) =>
  fetch(`${gateway.url}/health`, { headers: toSandbox(id) }).then(({ status }) => status);

test('each hook runs once, also when one of two gateways is killed', async () => {
  const count = 40;
  const file = join(scratch(), 'told');
  await using guests = await startGuests(count);
  // Hooks take time, so that the kill hits some of them.
  const [first, second] = await startBoth(`sleep 0.1; ${record(file)}; sleep 0.1`);
  await using other = second;
  const ids = guests.ports.map((_, index) => `s${index}`);
  await Promise.all(
    ids.map((id, index) =>
      (index % 2 ? first : second).register(id, guests.ports[index] ?? 0, { timeout: 600 }),
    ),
  );
  await Promise.all(ids.map((id) => first.call(`POST /sandboxes/${id}/timeout`, { timeout: 1 })));
  await until('a quarter of the hooks has been called', () => hookCalls(file).length >= count / 4);
  await first.kill('SIGKILL');
  for (const id of ids) await phase(other, id, 'paused');
  expect(
    hookCalls(file)
      .map(({ sandboxID }) => sandboxID)
      .toSorted(),
  ).toEqual(ids.toSorted());
  expect(guests.ports.every((_, index) => guests.isFrozen(index))).toBe(true);
});

test('a gateway that hung for longer than its lease changes nothing when it goes on', async () => {
  const directory = scratch();
  const file = join(directory, 'told');
  const start = () => startGateway({ directory, args: [`--redis=${redis.url}`, `--hook=${record(file)}`] });
  await using guests = await startGuests(1);
  await using hung = await start();
  const { reached, release } = guests.hold('/collapse');
  await hung.register('one', guests.ports[0] ?? 0, { timeout: 0 });
  await reached;
  process.kill(hung.pid, 'SIGSTOP');
  await using other = await start();
  // The other one has started while the claim holds.
  expect((await other.call('GET /sandboxes/one')).body.phase).toBe('expiring');
  release();
  await phase(other, 'one', 'paused');
  process.kill(hung.pid, 'SIGCONT');
  await until('it answers 502', async () => (await health(hung, 'one')) === 502);
  // By then it has read the response of the guest and tried to record it.
  await other.call('GET /sandboxes/one');
  expect((await hung.call('GET /sandboxes/one')).body).toMatchObject({ phase: 'paused', failures: 0 });
  expect(hookCalls(file)).toHaveLength(1);
  expect(guests.isFrozen(0)).toBe(true);
});

test('a change through one gateway is seen by the other at once', async () => {
  await using guests = await startGuests(1);
  const [first, second] = await startBoth('true');
  await using _first = first;
  await using _second = second;
  await first.register('one', guests.ports[0] ?? 0, { timeout: 60 });
  expect(await health(second, 'one')).toBe(204);
  await second.call('POST /sandboxes/one/timeout', { timeout: 0 });
  expect(await health(first, 'one')).toBe(502);
  await phase(first, 'one', 'paused');
  expect((await first.call('GET /sandboxes/one')).body).toEqual(
    (await second.call('GET /sandboxes/one')).body,
  );
});

test('the other gateway closes its connections to a sandbox that has gone, too', async () => {
  const server = createServer((_request, response) => response.flushHeaders()).listen(0, '127.0.0.1');
  await once(server, 'listening');
  await using guests = await startGuests(1);
  const [first, second] = await startBoth('true');
  await using _first = first;
  await using _second = second;
  await first.register('one', guests.ports[0] ?? 0);
  for (const [gateway, operation] of [
    [first, 'DELETE /sandboxes/one'],
    [second, 'POST /sandboxes/one/timeout'],
  ] as const) {
    await first.register('one', guests.ports[0] ?? 0);
    const socket = connect(second.port, '127.0.0.1');
    const { port } = server.address() as AddressInfo;
    socket.write(`GET / HTTP/1.1\r\nhost: a\r\nsvc-sandbox-id: one\r\nsvc-sandbox-port: ${port}\r\n\r\n`);
    await once(socket, 'data');
    // It may be closed before the operation is answered.
    const closed = once(socket.resume(), 'close');
    await gateway.call(operation, operation.startsWith('POST') ? { timeout: 0 } : undefined);
    await expect(closed).resolves.toEqual([false]);
    await phase(first, 'one', 'gone', 'paused');
  }
  server.closeAllConnections();
  server.close();
});

test('while Redis is away requests fail with 503, and nothing is lost when it is back', async () => {
  await using guests = await startGuests(1);
  const file = join(scratch(), 'told');
  const [first, second] = await startBoth(record(file));
  await using _first = first;
  await using _second = second;
  await first.register('one', guests.ports[0] ?? 0, { timeout: 2 });
  await redis.stop();
  await until('it answers 503', async () => (await health(first, 'one')) === 503);
  expect((await first.call('POST /sandboxes/one/timeout', { timeout: 60 })).status).toBe(503);
  expect((await fetch(`${first.url}/gateway/health`)).status).toBe(503);
  await redis.start();
  await until('a hook was called', () => hookCalls(file).length === 1);
  await phase(second, 'one', 'paused');
});

test('a gateway does not start without its Redis', async () => {
  await expect(startGateway({ args: ['--redis=redis://127.0.0.1:1', '--redis-wait=1'] })).rejects.toThrow(
    'gateway exited with 1',
  );
});
