import { expect, test } from 'vitest';
import { scratch } from '../support/machine/scratch.ts';
import { startGateway, type TestGateway, toSandbox } from '../support/programs/gateway.ts';
import { startGuests } from '../support/programs/guests.ts';
import { owned } from '../support/programs/owned.ts';
import { hookCalls, phase, record } from '../support/servers/hook.ts';
import { idOf, isInStep, slotOf, startRedisCluster, tell } from '../support/servers/redis-cluster.ts';
import { info } from '../support/servers/redis-set.ts';
import { until } from '../support/until.ts';

const reach = async (gateway: TestGateway, id: string) =>
  (await fetch(`${gateway.url}/health`, { headers: toSandbox(id) })).status;

const extend = async (gateway: TestGateway, id: string) =>
  (await gateway.call(`POST /sandboxes/${id}/timeout`, { timeout: 900 })).status;

test('the node of the registry dies: its replica takes over, nothing is lost, each hook runs once', async () => {
  const cluster = await owned(startRedisCluster(1));
  const guests = await owned(startGuests(2));
  const file = `${scratch()}/told`;
  const options = { args: [...cluster.flags, `--hook=${record(file)}`], directory: scratch() };
  const gateways = [await owned(startGateway(options)), await owned(startGateway(options))] as const;
  const [first, second] = gateways;
  await first.register('one', guests.ports[0] ?? 0, { timeout: 600 });
  await first.register('two', guests.ports[1] ?? 0, { timeout: 5 });
  for (const gateway of gateways) expect(await reach(gateway, 'one')).toBe(204);

  await cluster.owner.stop('SIGKILL');
  const [replica] = cluster.replicas;
  if (!replica) throw new Error('no replica');
  // The only replica is the master then, and nobody has its changes: 503.
  await until('it has the registry', async () => /role:master/.test(await info(replica.url, 'replication')));
  await cluster.owner.start();
  await until('the earlier one follows it', () => isInStep(replica, 1));
  for (const gateway of gateways) {
    await until('it reaches the sandbox again', async () => (await reach(gateway, 'one')) === 204);
    await until('it makes changes again', async () => (await extend(gateway, 'one')) === 204);
  }
  await phase(second, 'two', 'paused');
  expect(hookCalls(file).map(({ sandboxID }) => sandboxID)).toEqual(['two']);
  // Changes are told on the new connection, too.
  await until('it is removed', async () =>
    [204, 404].includes((await second.call('DELETE /sandboxes/one')).status),
  );
  await until('the other gateway knows', async () => (await reach(first, 'one')) === 502);
});

test('a change that no replica has is refused: 503', async () => {
  const cluster = await owned(startRedisCluster(1));
  const guests = await owned(startGuests(1));
  const gateway = await owned(startGateway({ args: cluster.flags }));
  await gateway.register('one', guests.ports[0] ?? 0, { timeout: 600 });
  for (const replica of cluster.replicas) replica.signal('SIGSTOP');
  const refused = await gateway.call('POST /sandboxes/one/timeout', { timeout: 900 });
  expect([refused.status, refused.body]).toMatchObject([
    503,
    { message: expect.stringContaining('0 of 1 replicas have it after 1 s') },
  ]);
  expect(await reach(gateway, 'one')).toBe(204);
});

test('the registry is moved to another node: it is followed', async () => {
  const cluster = await owned(startRedisCluster(0));
  const guests = await owned(startGuests(1));
  const gateway = await owned(startGateway({ args: [...cluster.flags, '--redis-replicas=0'] }));
  await gateway.register('one', guests.ports[0] ?? 0, { timeout: 600 });
  const { owner, masters } = cluster;
  const target = masters.find((node) => node !== owner);
  if (!target) throw new Error('no other node');
  const slot = String(await slotOf(owner));
  const move = (state: string, id: string) => ['CLUSTER', 'SETSLOT', slot, state, id];
  await tell(target, ...move('IMPORTING', await idOf(owner)));
  await tell(owner, ...move('MIGRATING', await idOf(target)));
  const keys = (await tell(owner, 'CLUSTER', 'GETKEYSINSLOT', slot, '100')) as unknown as readonly string[];
  await tell(owner, 'MIGRATE', '127.0.0.1', `${target.port}`, '', '0', '5000', 'KEYS', ...keys);
  for (const node of [target, ...masters]) await tell(node, ...move('NODE', await idOf(target)));
  await until('it changes it there', async () => (await extend(gateway, 'one')) === 204);
  expect(await tell(target, 'EXISTS', '{envd-gateway}:sandbox:one')).toBe(1);
  expect(await reach(gateway, 'one')).toBe(204);
});
