import { until } from '../until.ts';
import { freePort } from './free-port.ts';
import { type RedisServer, startRedis } from './redis-server.ts';
import { ask, info } from './redis-set.ts';

const SLOTS = 16_384;
const KEYS = '{envd-gateway}';

/** Three masters, and replicas of the one that has the keys of gateways. */
export interface RedisCluster extends AsyncDisposable {
  readonly masters: readonly RedisServer[];
  /** The one that has the keys. */
  readonly owner: RedisServer;
  readonly replicas: readonly RedisServer[];
  /** Of a gateway. */
  readonly flags: readonly string[];
}

/** What a node answers. */
export const tell = (node: RedisServer, ...command: readonly string[]) =>
  ask(node.url, (client) => client.sendCommand(command));

/** The slot of the keys. */
export const slotOf = async (node: RedisServer) => Number(await tell(node, 'CLUSTER', 'KEYSLOT', KEYS));

export const idOf = async (node: RedisServer) => String(await tell(node, 'CLUSTER', 'MYID'));

/** Whether all replicas of a node have what it has. */
export const isInStep = async (node: RedisServer, replicas: number) =>
  ((await info(node.url, 'replication')).match(/state=online/g)?.length ?? 0) === replicas;

export async function startRedisCluster(replicas: number): Promise<RedisCluster> {
  const stack = new AsyncDisposableStack();
  const nodes: RedisServer[] = [];
  const buses: number[] = [];
  while (nodes.length < 3 + replicas) {
    const bus = await freePort();
    const flags = ['--cluster-enabled', 'yes', '--cluster-port', `${bus}`, '--cluster-node-timeout', '3000'];
    nodes.push(stack.use(await startRedis(...flags)));
    buses.push(bus);
  }
  const [first] = nodes as [RedisServer];
  for (const [index, { port }] of nodes.entries())
    await tell(first, 'CLUSTER', 'MEET', '127.0.0.1', `${port}`, `${buses[index]}`);
  const masters = nodes.slice(0, 3);
  const bounds = masters.map((_, index) => Math.ceil((index * SLOTS) / masters.length));
  for (const [index, node] of masters.entries()) {
    const last = (bounds[index + 1] ?? SLOTS) - 1;
    await tell(node, 'CLUSTER', 'ADDSLOTSRANGE', `${bounds[index]}`, `${last}`);
  }
  const slot = await slotOf(first);
  const owner = masters.findLast((_, index) => (bounds[index] ?? 0) <= slot) ?? first;
  const id = await idOf(owner);
  const following = nodes.slice(3);
  for (const node of following) {
    await until(
      'it knows its master',
      async () => String(await tell(node, 'CLUSTER', 'REPLICATE', id)) === 'OK',
    );
  }
  for (const node of nodes) {
    await until('the cluster is well', async () =>
      /cluster_state:ok.*cluster_slots_ok:16384/s.test(String(await tell(node, 'CLUSTER', 'INFO'))),
    );
    await until('all know the replicas', async () => {
      const known = String(await tell(node, 'CLUSTER', 'NODES'));
      return (known.match(new RegExp(`slave ${id} `, 'g'))?.length ?? 0) === replicas;
    });
  }
  await until('the replicas follow', () => isInStep(owner, replicas));
  const list = nodes.map(({ port }) => `127.0.0.1:${port}`).join(',');
  return {
    ...{ masters, owner, replicas: following },
    flags: [`--redis=${first.url}`, `--redis-cluster=${list}`],
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}
