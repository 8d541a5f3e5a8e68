import { createClient } from '@redis/client';
import { expect, onTestFinished, test } from 'vitest';
import { type Agent, startAgent } from '../support/programs/agent.ts';
import { startGateway, type TestGateway, toSandbox } from '../support/programs/gateway.ts';
import { startRedis } from '../support/servers/redis-server.ts';
import { until } from '../support/until.ts';

interface Scene {
  readonly gateway: TestGateway;
  readonly agent: Agent;
  readonly args: readonly string[];
  readonly redis: (...command: readonly string[]) => Promise<unknown>;
}

async function scene(): Promise<Scene> {
  const [server, agent] = [await startRedis(), await startAgent()];
  const client = createClient({ url: server.url });
  await client.connect();
  const hook = `echo '{"address":"127.0.0.1","port":${agent.port}}'`;
  const args = [`--redis=${server.url}`, `--create-hook=${hook}`, '--kill-hook=true'];
  const gateway = await startGateway({ args });
  onTestFinished(async () => {
    client.destroy();
    for (const each of [gateway, agent, server]) await each[Symbol.asyncDispose]();
  });
  return { gateway, agent, args, redis: (...command) => client.sendCommand(command) };
}

const health = async ({ url }: TestGateway) => (await fetch(`${url}/gateway/health`)).status;
const create = (gateway: TestGateway) => gateway.call('POST /v2/sandboxes', { templateID: 'base' });

test('a Redis that was emptied: nothing is created until a person starts the gateway again', async () => {
  const { gateway, agent, args, redis } = await scene();
  expect((await create(gateway)).status).toBe(201);
  await redis('FLUSHALL');
  await until('the health check fails', async () => (await health(gateway)) === 503);
  // A wrong reply is asked for again on another connection, in case it belongs to another command.
  const isKnown = async () => (await create(gateway)).text.includes('Redis was emptied');
  await until('it is known why', isKnown);
  const refused = await create(gateway);
  expect([refused.status, refused.headers.get('retry-after')]).toEqual([503, '1']);
  const told = () => gateway.log.filter(({ msg }) => msg === 'the registry has lost records');
  await until('it is told', () => told().length > 0);
  expect(told()).toHaveLength(1);
  // The platform can still register what it knows, and it is reached.
  await gateway.register('known', agent.port, { timeout: 600 });
  expect((await fetch(`${gateway.url}/health`, { headers: toSandbox('known') })).status).toBe(200);
  await using next = await startGateway({ args });
  expect(await health(next)).toBe(204);
  expect((await create(next)).status).toBe(201);
  expect(await health(gateway)).toBe(503);
});

test('a Redis that may remove records is not used for new ones until it is set right', async () => {
  const { gateway, redis } = await scene();
  await redis('CONFIG', 'SET', 'maxmemory-policy', 'allkeys-lru');
  await redis('CONFIG', 'SET', 'maxmemory', '100mb');
  await until('the health check fails', async () => (await health(gateway)) === 503);
  expect((await create(gateway)).body.message).toContain('set it to noeviction');
  await redis('CONFIG', 'SET', 'maxmemory-policy', 'noeviction');
  await until('the health check succeeds', async () => (await health(gateway)) === 204);
  expect((await create(gateway)).status).toBe(201);
});

test('a malformed record is left out of lists and told, and a registration repairs it', async () => {
  const { gateway, agent, redis } = await scene();
  for (const id of ['one', 'two', 'three']) await gateway.register(id, agent.port, { timeout: 600 });
  const key = '{envd-gateway}:sandbox:two';
  const { startedAt: _, ...record } = JSON.parse(String(await redis('HGET', key, 'record')));
  for (const broken of [JSON.stringify(record), '{', 'null']) {
    await redis('HSET', key, 'record', broken);
    const { status, body } = await gateway.call('GET /v2/sandboxes');
    expect(status).toBe(200);
    expect(body.map(({ sandboxID }: { sandboxID: string }) => sandboxID).toSorted()).toEqual([
      'one',
      'three',
    ]);
    expect((await gateway.call('GET /sandboxes/two')).status).toBe(404);
  }
  const isTold = () =>
    gateway.log.filter(({ sandboxID, level }) => sandboxID === 'two' && Number(level) >= 50);
  await until('it is told', () => isTold().length > 0);
  expect(isTold()).toHaveLength(1);
  await gateway.register('two', agent.port, { timeout: 600 });
  expect((await gateway.call('GET /v2/sandboxes')).body).toHaveLength(3);
});
