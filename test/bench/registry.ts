/**
 * The registry in Redis (Debian: redis-server) with many sandboxes on 100 hosts, and several gateways on it: registrations,
 * rest, requests to all sandboxes and to few, the same while gateways are killed, lists, metrics, and what it
 * costs that a replica has each change.
 * Arguments: sandboxes, gateways, seconds of each part.
 */
import { once } from 'node:events';
import { Agent, createServer, get, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { createClient } from '@redis/client';
import { startGateway, type TestGateway, toSandbox } from '../support/programs/gateway.ts';
import { freePort } from '../support/servers/free-port.ts';
import { startRedis } from '../support/servers/redis-server.ts';
import { info } from '../support/servers/redis-set.ts';
import { until } from '../support/until.ts';
import { cpuMs, printTable, residentMib, show } from './figures.ts';

const [sandboxes = 10_000, gatewayCount = 3, seconds = 10] = process.argv.slice(2).map(Number);
const HOSTS = 100;
/** Sandboxes that are asked for again and again. */
const HOT = 100;
const CONNECTIONS = 16;
const KILLS_EVERY_MS = 1000;

await using redis = await startRedis();
const client = createClient({ url: redis.url });
await client.connect();
const ports = await Promise.all(Array.from({ length: gatewayCount }, freePort));
const start = (port: number) => startGateway({ port, args: [`--redis=${redis.url}`] });
const gateways = await Promise.all(ports.map(start));

const agents = ports.map(() => new Agent({ keepAlive: true, maxSockets: CONNECTIONS }));
let wrong = 0;
let lost = 0;

/** All sandboxes. Each has an address of its own, and answers with it. */
const guests = createServer((request, response) => {
  response.setHeader('x-address', request.socket.localAddress ?? '').end();
}).listen(0, '0.0.0.0');
await once(guests, 'listening');
const { port: guestPort } = guests.address() as AddressInfo;

/** Sends a request to a sandbox; the time in ms, or null when the gateway was killed meanwhile. */
async function reach(sandbox: number): Promise<number | null> {
  const which = sandbox % gatewayCount;
  const started = performance.now();
  try {
    const request = get({
      ...{ host: '127.0.0.1', port: ports[which], agent: agents[which] },
      headers: toSandbox(`s${sandbox}`),
    });
    const [response] = (await once(request, 'response')) as [IncomingMessage];
    await once(response.resume(), 'end');
    if (response.headers['x-address'] !== addressOf(sandbox)) wrong++;
    return performance.now() - started;
  } catch {
    lost++;
    // Its successor listens soon.
    await delay(20);
    return null;
  }
}

// Of the range that gateways of tests may connect to.
const addressOf = (sandbox: number) => `127.${1 + (sandbox >> 16)}.${(sandbox >> 8) & 255}.${sandbox & 255}`;

interface Part {
  readonly answered: number;
  readonly seconds: number;
  readonly times: readonly number[];
}

/** Works over some connections to each gateway until the time is up, or `count` are done. */
async function load(work: (index: number) => Promise<number | null>, count = Number.POSITIVE_INFINITY) {
  const [times, started]: [number[], number] = [[], performance.now()];
  let next = 0;
  const isOver = () =>
    next >= count || (count === Number.POSITIVE_INFINITY && performance.now() - started > seconds * 1000);
  const one = async () => {
    while (!isOver()) {
      const time = await work(next++);
      if (time !== null) times.push(time);
    }
  };
  await Promise.all(Array.from({ length: CONNECTIONS * gatewayCount }, one));
  return { answered: times.length, seconds: (performance.now() - started) / 1000, times };
}

const commandsSoFar = async () =>
  Number(/total_commands_processed:(\d+)/.exec(await client.info('stats'))?.[1]);
const redisPid = Number(/process_id:(\d+)/.exec(await client.info('server'))?.[1]);
const rows: Record<string, string>[] = [];

async function measure(what: string, part: () => Promise<Part>): Promise<void> {
  [wrong, lost] = [0, 0];
  const [commands, cpu] = [await commandsSoFar(), cpuMs(redisPid)];
  const result = await part();
  const times = result.times.toSorted((a, b) => a - b);
  const at = (share: number) => (times.length > 0 ? show(times[Math.floor(times.length * share)] ?? 0) : '');
  rows.push({
    '': what,
    'a second': result.answered > 0 ? show(result.answered / result.seconds) : '',
    'median ms': at(0.5),
    'p99 ms': at(0.99),
    'Redis commands a second': show(((await commandsSoFar()) - commands) / result.seconds),
    "Redis' CPU %": show((cpuMs(redisPid) - cpu) / result.seconds / 10),
    'wrong, lost': `${wrong}, ${lost}`,
  });
}

const timed = async (work: () => Promise<unknown>) => {
  const started = performance.now();
  await work();
  return performance.now() - started;
};
const random = (below: number) => Math.floor(Math.random() * below);
const anyGateway = (): TestGateway => gateways[random(gatewayCount)] ?? fail();

function register(sandbox: number): Promise<number> {
  const place = { address: addressOf(sandbox), port: guestPort };
  const body = { sandboxID: `s${sandbox}`, ...place, host: `h${sandbox % HOSTS}`, timeout: 86_400 };
  return timed(async () => {
    const { status, text } = await anyGateway().call('POST /sandboxes', body);
    if (status !== 201) throw new Error(text);
  });
}

await measure('registrations', () => load(register, sandboxes));
await measure('nobody asks', async () => {
  await delay(seconds * 1000);
  return { answered: 0, seconds, times: [] };
});
await measure('requests to all', () => load(() => reach(random(sandboxes))));
await measure(`requests to ${HOT}`, () => load(() => reach(random(HOT))));
const extend = (by: () => TestGateway) => () =>
  load(() => timed(() => by().call(`POST /sandboxes/s${random(sandboxes)}/timeout`, { timeout: 86_400 })));
await measure('longer times to live', extend(anyGateway));
await measure('requests to all, one gateway killed each second', async () => {
  let over = false;
  const killing = (async () => {
    for (let round = 0; !over; round++) {
      await delay(KILLS_EVERY_MS);
      const which = round % gatewayCount;
      await gateways[which]?.kill();
      gateways[which] = await start(ports[which] ?? 0);
    }
  })();
  const result = await load(() => reach(random(sandboxes)));
  over = true;
  await killing;
  return result;
});
const first = anyGateway();
await measure('pages of 100', () => load(() => timed(() => first.call('GET /sandboxes?limit=100'))));
await measure('metrics', () => load(() => timed(() => first.call('GET /gateway/metrics'))));
await using replica = await startRedis('--replicaof', '127.0.0.1', `${redis.port}`);
await until('the replica follows', async () =>
  /state=online/.test(await info(redis.url, 'replication')) ? replica.port : undefined,
);
await using waiting = await startGateway({ args: [`--redis=${redis.url}`, '--redis-replicas=1'] });
await measure(
  'longer times to live, one gateway',
  extend(() => first),
);
await measure(
  'the same, each on a replica',
  extend(() => waiting),
);
printTable(`${sandboxes} sandboxes on ${HOSTS} hosts, ${gatewayCount} gateways, one Redis`, rows);
console.log(`\nRedis: ${show(residentMib(redisPid))} MiB; a gateway: ${show(residentMib(first.pid))} MiB`);
client.destroy();
guests.close();
guests.closeAllConnections();
for (const each of agents) each.destroy();
for (const gateway of gateways) await gateway[Symbol.asyncDispose]();

function fail(): never {
  throw new Error('there is no gateway');
}
