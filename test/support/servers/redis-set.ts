import { createClient } from '@redis/client';
import { until } from '../until.ts';
import { type RedisServer, startRedis, startSentinel } from './redis-server.ts';

/** What Sentinels call the set. */
const SET = 'registry';

/** A master with replicas, and three Sentinels that make one of them the master when it dies. */
export interface RedisSet extends AsyncDisposable {
  /** The first master, then its replicas. */
  readonly servers: readonly RedisServer[];
  readonly sentinels: readonly RedisServer[];
  /** Of a gateway. */
  readonly flags: readonly string[];
  /** The master, when all replicas are in step and all Sentinels agree. */
  master(): Promise<RedisServer>;
}

const clientOf = (url: string) => createClient({ url, socket: { reconnectStrategy: false } });

/** What a server answers; null when it cannot be reached, or its connection breaks. */
export async function ask<T>(
  url: string,
  question: (client: ReturnType<typeof clientOf>) => Promise<T>,
): Promise<T | null> {
  const client = clientOf(url);
  client.on('error', () => {});
  try {
    await client.connect();
    return await question(client);
  } catch {
    return null;
  } finally {
    if (client.isOpen) client.destroy();
  }
}

/** A section of INFO; empty when the server cannot be reached. */
export const info = (url: string, section: string) =>
  ask(url, (client) => client.info(section)).then((text) => text ?? '');

export async function startRedisSet(replicas: number): Promise<RedisSet> {
  const stack = new AsyncDisposableStack();
  const first = stack.use(await startRedis());
  const servers = [first];
  for (let index = 0; index < replicas; index++)
    servers.push(stack.use(await startRedis('--replicaof', '127.0.0.1', `${first.port}`)));
  const inStep = async ({ url }: RedisServer) => {
    const text = await info(url, 'replication');
    return /role:master/.test(text) && (text.match(/state=online/g)?.length ?? 0) === replicas;
  };
  await until('the replicas follow', () => inStep(first));
  const sentinels: RedisServer[] = [];
  for (let index = 0; index < 3; index++) sentinels.push(stack.use(await startSentinel(SET, first.port, 2)));
  const isKnown = async ({ port }: RedisServer) => {
    const told = sentinels.map(({ url }) =>
      ask(url, (client) => client.sendCommand(['SENTINEL', 'GET-MASTER-ADDR-BY-NAME', SET])),
    );
    return (await Promise.all(told)).every((address) => Array.isArray(address) && address[1] === `${port}`);
  };
  const known = new RegExp(`"num-slaves"[:,]"${replicas}".*"num-other-sentinels"[:,]"2"`);
  for (const { url } of sentinels) {
    await until('they know of each other and of the replicas', async () =>
      known.test(JSON.stringify(await ask(url, (client) => client.sendCommand(['SENTINEL', 'MASTER', SET])))),
    );
  }
  const list = sentinels.map(({ port }) => `127.0.0.1:${port}`).join(',');
  return {
    ...{ servers, sentinels, flags: [`--redis=redis://${SET}`, `--redis-sentinels=${list}`] },
    async master() {
      return await until('there is a master, with its replicas', async () => {
        for (const each of servers) if ((await inStep(each)) && (await isKnown(each))) return each;
        return undefined;
      });
    },
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}
