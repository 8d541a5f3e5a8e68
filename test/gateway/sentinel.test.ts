import { setTimeout as delay } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { scratch } from '../support/machine/scratch.ts';
import { startGateway, type TestGateway, toSandbox } from '../support/programs/gateway.ts';
import { startGuests } from '../support/programs/guests.ts';
import { owned } from '../support/programs/owned.ts';
import { startedAlone } from '../support/programs/started-alone.ts';
import { hookCalls, phase, record } from '../support/servers/hook.ts';
import { startRedis, startSentinel } from '../support/servers/redis-server.ts';
import { ask, info, startRedisSet } from '../support/servers/redis-set.ts';
import { startRelay } from '../support/servers/relay.ts';
import { until } from '../support/until.ts';

/** A replica that is late by the first is not waited for during the second, in milliseconds. */
const [LIMIT_MS, LENIENT_MS] = [1000, 10_000];

const reach = async (gateway: TestGateway, id: string) =>
  (await fetch(`${gateway.url}/health`, { headers: toSandbox(id) })).status;

test('the master dies: another one takes over, nothing is lost, each hook runs once', async () => {
  const set = await owned(startRedisSet(2));
  const master = await set.master();
  const guests = await owned(startGuests(2));
  const file = `${scratch()}/told`;
  // The first Sentinel does not answer at all.
  const flags = [
    ...set.flags.map((flag) => flag.replace('-sentinels=', '-sentinels=127.0.0.1:1,')),
    `--hook=${record(file)}`,
  ];
  const directory = scratch();
  const gateways = [
    await owned(startGateway({ args: flags, directory })),
    await owned(startGateway({ args: flags, directory })),
  ] as const;
  const [first, second] = gateways;
  await first.register('one', guests.ports[0] ?? 0, { timeout: 600 });
  await first.register('two', guests.ports[1] ?? 0, { timeout: 3 });
  for (const gateway of gateways) expect(await reach(gateway, 'one')).toBe(204);

  await master.stop('SIGKILL');
  for (const gateway of gateways) {
    await until('it reaches the sandbox again', async () => (await reach(gateway, 'one')) === 204);
  }
  await phase(second, 'two', 'paused');
  expect(hookCalls(file).map(({ sandboxID }) => sandboxID)).toEqual(['two']);
  // Changes are told on the new connection, too.
  await until('it makes changes again', async () =>
    [204, 404].includes((await second.call('DELETE /sandboxes/one')).status),
  );
  await until('the other gateway knows', async () => (await reach(first, 'one')) === 502);

  // The old master comes back, as a replica that refuses writes; the gateways stay with the new one.
  await master.start();
  await until('it follows', async () => /role:slave/.test(await info(master.url, 'replication')));
  await first.register('one', guests.ports[0] ?? 0, { timeout: 600 });
  expect(await reach(second, 'one')).toBe(204);
});

test('a planned change of the master is followed', async () => {
  const master = await owned(startRedis());
  const replica = await owned(startRedis('--replicaof', '127.0.0.1', `${master.port}`));
  const sentinel = await owned(startSentinel('registry', master.port, 1));
  await until('the replica is known', async () => /slaves=1/.test(await info(sentinel.url, 'sentinel')));
  await until('the replica follows', async () => /state=online/.test(await info(master.url, 'replication')));
  const guests = await owned(startGuests(1));
  const flags = ['--redis=redis://registry', `--redis-sentinels=${sentinel.url}`];
  const gateway = await owned(startGateway({ args: flags }));
  await gateway.register('one', guests.ports[0] ?? 0, { timeout: 600 });
  expect(await reach(gateway, 'one')).toBe(204);
  // Sentinel gives up a change while it takes the replica for one that does not follow; refused while one is under way.
  await until('the roles have changed', async () => {
    if (/role:master/.test(await info(replica.url, 'replication'))) return true;
    await ask(sentinel.url, (client) => client.sendCommand(['SENTINEL', 'FAILOVER', 'registry']));
    return false;
  });
  await until('it writes to the new master', async () => {
    const { status } = await gateway.call('POST /sandboxes/one/timeout', { timeout: 900 });
    return status === 204;
  });
  expect(await reach(gateway, 'one')).toBe(204);
});

test('what was answered survives the master, and a change that no replica has is refused: 503', async () => {
  const set = await owned(startRedisSet(2));
  const guests = await owned(startGuests(1));
  const gateway = await owned(startGateway({ args: set.flags }));
  const register = (sandboxID: string) =>
    gateway.call('POST /sandboxes', { sandboxID, address: '127.0.0.1', port: guests.ports[0] ?? 0 });
  const master = await set.master();
  const replicas = set.servers.filter((server) => server !== master);
  const names = Array.from({ length: 64 }, (_, index) => `box-${index}`);
  const statuses = (await Promise.all(names.map(register))).map(({ status }) => status);
  expect(new Set(statuses)).toEqual(new Set([201]));

  for (const replica of replicas) replica.signal('SIGSTOP');
  const refused = await register('late');
  expect([refused.status, refused.body]).toMatchObject([
    503,
    {
      message:
        'the registry did not replicate the change, which may be lost: 0 of 1 replicas have it after 1 s',
    },
  ]);
  expect(await reach(gateway, 'box-0')).toBe(204);
  await master.stop('SIGKILL');
  for (const replica of replicas) replica.signal('SIGCONT');
  for (const name of names) await until('it is reached', async () => (await reach(gateway, name)) === 204);
  await until('changes are taken again', async () => (await register('late')).status === 201);
});

test('all replicas that are connected have a change when it is answered; one that hangs is not needed', async () => {
  const master = await owned(startRedis());
  await owned(startRedis('--replicaof', '127.0.0.1', `${master.port}`));
  const relay = await owned(startRelay(master.port));
  const replica = await owned(startRedis('--replicaof', '127.0.0.1', `${relay.port}`));
  // It leaves a replica alone that follows the relay.
  const sentinel = await owned(startSentinel('registry', master.port, 1, 600_000));
  const connected = async () => (await info(master.url, 'replication')).match(/state=online/g)?.length;
  await until('both replicas follow', connected, (count) => count === 2);
  const guests = await owned(startGuests(1));
  const flags = ['--redis=redis://registry', `--redis-sentinels=${sentinel.url}`];
  const gateway = await owned(startGateway({ args: flags }));
  const register = (sandboxID: string) => gateway.register(sandboxID, guests.ports[0] ?? 0);
  for (let [index, timely] = [0, 0]; timely < 5; index++) {
    // Held up long enough for the other replica to have it.
    using _late = relay.inject({ kind: 'delay', from: 'server', piece: 0, at: 0 });
    const began = performance.now();
    await register(`box-${index}`);
    if (performance.now() - began >= LIMIT_MS) {
      // On a busy machine it may have been late. Then it is not waited for, for some time.
      await delay(LENIENT_MS);
      continue;
    }
    const key = `{envd-gateway}:sandbox:box-${index}`;
    expect(await ask(replica.url, (client) => client.exists(key))).toBe(1);
    timely++;
  }
  replica.signal('SIGSTOP');
  for (let index = 0; index < 5; index++) await register(`later-${index}`);
  replica.signal('SIGCONT');
  await until('it has them, too', async () =>
    Boolean(await ask(replica.url, (client) => client.exists('{envd-gateway}:sandbox:later-4'))),
  );
});

test('with --redis-replicas 0 a change is answered at once', async () => {
  const redis = await owned(startRedis());
  const sentinel = await owned(startSentinel('registry', redis.port, 1));
  const flags = ['--redis=redis://registry', `--redis-sentinels=${sentinel.url}`, '--redis-replicas=0'];
  const guests = await owned(startGuests(1));
  const gateway = await owned(startGateway({ args: flags }));
  await gateway.register('one', guests.ports[0] ?? 0, { timeout: 600 });
  expect(await reach(gateway, 'one')).toBe(204);
});

test('a server without the replicas that it needs takes no changes: 503, and requests are served', async () => {
  const redis = await owned(startRedis());
  const guests = await owned(startGuests(1));
  const gateway = await owned(startGateway({ args: [`--redis=${redis.url}`] }));
  await gateway.register('one', guests.ports[0] ?? 0, { timeout: 600 });
  await ask(redis.url, (client) => client.configSet('min-replicas-to-write', '1'));
  const refused = await gateway.call('POST /sandboxes/one/timeout', { timeout: 900 });
  expect([refused.status, refused.body]).toMatchObject([
    503,
    { message: expect.stringContaining('registry') },
  ]);
  expect(await reach(gateway, 'one')).toBe(204);
  await ask(redis.url, (client) => client.configSet('min-replicas-to-write', '0'));
  expect((await gateway.call('POST /sandboxes/one/timeout', { timeout: 900 })).status).toBe(204);
});

test.each([
  [
    'a node of a cluster',
    ['--cluster-enabled', 'yes'],
    /it is a node of a cluster: name it in --redis-cluster/,
    2,
  ],
  ['a replica', ['--replicaof', '127.0.0.1', '1'], /the server of the registry is a replica/, 1],
] as const)('%s is refused at the start, with the reason', async (_what, more, sentence, code) => {
  const server = await owned(startRedis(...more));
  expect(await started(`--redis=${server.url}`)).toEqual([code, expect.stringMatching(sentence)]);
});

test('so is a Sentinel, an unknown name, what is not of a cluster, and Sentinels that do not answer, or do not agree', async () => {
  const server = await owned(startRedis());
  const sentinel = await owned(startSentinel('registry', server.port, 1));
  const reason = /it is a Sentinel: name it in --redis-sentinels/;
  expect(await started(`--redis=${sentinel.url}`)).toEqual([2, expect.stringMatching(reason)]);
  const named = (name: string, port: number | string) =>
    started(`--redis=redis://${name}`, `--redis-sentinels=127.0.0.1:${port}`);
  expect(await named('other', sentinel.port)).toEqual([
    1,
    expect.stringMatching(/it knows no master 'other'/),
  ]);
  const another = await owned(startSentinel('registry', sentinel.port, 1));
  const tell = (...ports: readonly number[]) => named('registry', ports.join(',127.0.0.1:'));
  expect(await tell(sentinel.port, another.port)).toEqual([
    1,
    expect.stringMatching(/do not agree on which server/),
  ]);
  expect(await tell(sentinel.port, 1)).toEqual([1, expect.stringMatching(/only 1 of 2 Sentinels say where/)]);
  const node = `--redis-cluster=127.0.0.1:${server.port}`;
  expect(await started(`--redis=${server.url}`, node)).toEqual([
    1,
    expect.stringMatching(/no node says where the registry is: .*cluster support disabled/),
  ]);
  expect(await named('registry', 1)).toEqual([
    1,
    expect.stringMatching(/no Sentinel says where .*: 127.0.0.1:1: /),
  ]);
});

/** The exit code of a gateway that does not wait, and what it complains of. */
async function started(
  ...args: readonly string[]
): Promise<readonly [code: number | null, complaint: string]> {
  const { code, complaint } = await startedAlone('--redis-wait=0', ...args).ended;
  return [code, complaint];
}
