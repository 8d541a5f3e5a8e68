import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { scratch } from '../../support/machine/scratch.ts';
import { startGateway } from '../../support/programs/gateway.ts';
import { owned } from '../../support/programs/owned.ts';
import { startRedis } from '../../support/servers/redis-server.ts';
import { startRelay } from '../../support/servers/relay.ts';
import { until } from '../../support/until.ts';

const ADA = { 'x-api-key': 'key-of-ada' };

async function startWithKeys(...more: readonly string[]) {
  const file = join(scratch(), 'keys');
  writeFileSync(file, 'platform key-of-the-file\nclient ada key-of-ada\n');
  return owned(startGateway({ args: [`--key-file=${file}`, ...more] }));
}

test('the lists of a client are read one after the other, however many it asks for', async () => {
  const redis = await owned(startRedis());
  let sent = 0;
  const relay = await owned(
    startRelay(redis.port, (data) => {
      sent += data.toString('latin1').split('{envd-gateway}:started:ada').length - 1;
    }),
  );
  const gateway = await startWithKeys(`--redis=redis://127.0.0.1:${relay.port}`);
  await gateway.register('box', 1, { owner: 'ada', timeout: 600 });
  const list = () => gateway.call('GET /v2/sandboxes?limit=1000', undefined, ADA);
  expect((await list()).body).toHaveLength(1);
  redis.signal('SIGSTOP');
  sent = 0;
  const statuses = (await Promise.all(Array.from({ length: 200 }, list))).map(({ status }) => status);
  expect(sent).toBe(1);
  expect(statuses.filter((status) => status === 429).length).toBeGreaterThan(0);
  expect(statuses.filter((status) => status !== 429 && status !== 503)).toEqual([]);
  redis.signal('SIGCONT');
  await until('lists are answered again', list, ({ status }) => status === 200);
});

test('a guest that does not tell what it uses has one connection, however many ask', async () => {
  const waiting: ServerResponse[] = [];
  const server = createServer((_request, response) => waiting.push(response)).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const gateway = await startWithKeys();
  await gateway.register('box', (server.address() as AddressInfo).port, { owner: 'ada', timeout: 600 });
  const asked = Array.from({ length: 50 }, () => gateway.call('GET /sandboxes/box/metrics', undefined, ADA));
  await until('the guest is asked', () => waiting.length > 0);
  // Behind those that have been sent.
  for (let index = 0; index < 5; index++) await gateway.call('GET /sandboxes/box', undefined, ADA);
  expect(waiting).toHaveLength(1);
  waiting[0]?.writeHead(500).end('{}');
  expect(new Set((await Promise.all(asked)).map(({ status }) => status))).toEqual(new Set([502]));
});

test('the longest id is one in each operation; what is none is refused in the words of the contract', async () => {
  const gateway = await startWithKeys();
  const id = 'i'.repeat(128);
  await gateway.register(id, 1, { timeout: 600 });
  expect((await gateway.call(`GET /sandboxes/${id}`)).body).toMatchObject({ sandboxID: id });
  expect((await gateway.call(`POST /sandboxes/${id}/timeout`, { timeout: 60 })).status).toBe(204);
  expect((await gateway.call(`DELETE /sandboxes/${id}`)).status).toBe(204);
  for (const [path, code] of [
    ['i'.repeat(129), 404],
    ['i'.repeat(8000), 404],
    ['%zz', 400],
  ] as const) {
    const { status, body } = await gateway.call(`GET /sandboxes/${path}`);
    expect([status, body]).toEqual([code, { code, message: expect.any(String) }]);
  }
});
