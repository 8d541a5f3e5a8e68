import { afterAll, beforeAll, expect, test } from 'vitest';
import { within } from '../../../src/base/abort.ts';
import { messageOf } from '../../../src/base/errors.ts';
import { faultCases, sampled } from '../../support/attackers/fault-cases.ts';
import { openFiles } from '../../support/machine/proc.ts';
import { type Agent, startAgent } from '../../support/programs/agent.ts';
import { type Answer, startGateway, type TestGateway, toSandbox } from '../../support/programs/gateway.ts';
import { type Machines, startMachines } from '../../support/programs/machines.ts';
import type { HookCall } from '../../support/servers/hook.ts';
import { type RedisServer, startRedis } from '../../support/servers/redis-server.ts';
import { info } from '../../support/servers/redis-set.ts';
import { type Relay, type RelayFault, startRelay } from '../../support/servers/relay.ts';
import { until } from '../../support/until.ts';

/*
 * A gateway reaches its registry, its hooks and a guest by relays, each of which spoils one piece of what it passes on. The answer
 * is an error or true, nothing is done twice, nothing hangs, nothing is left open. Another gateway of the same registry, without
 * relays, tells what is so, and takes over what the first one gives up.
 */

/** Longer than any operation may take here: a freeze has 15 s, a claim 5 s, a hook 2 s. */
const LIMIT_MS = 60_000;
const TIMEOUT = { timeout: 3_600_000 };
/** Phases in which nothing is under way. */
const RESTING: readonly string[] = ['running', 'paused', 'gone'];
/** How many pieces of each side meet each fault: about as many as an operation has. */
const PIECES = { registry: 6, 'replicated registry': 10, hook: 2, guest: 4 } as const;
type Path = keyof typeof PIECES;
type Place = 'registry' | 'hook' | 'guest';

interface Scene extends AsyncDisposable {
  readonly gateway: TestGateway;
  readonly other: TestGateway;
  readonly relays: Readonly<Record<Place, Relay>>;
  readonly machines: Machines;
}

let redis: RedisServer;
let replica: RedisServer;
let agent: Agent;
beforeAll(async () => {
  redis = await startRedis('--databases', '64');
  replica = await startRedis('--replicaof', '127.0.0.1', `${redis.port}`);
  await until('it follows', async () => /state=online/.test(await info(redis.url, 'replication')));
  agent = await startAgent();
});
afterAll(async () => {
  for (const each of [agent, replica, redis]) await each?.[Symbol.asyncDispose]();
});

let scenes = 0;

/** @param replicas that must have a change of the gateway with relays */
async function startScene(replicas: number): Promise<Scene> {
  const machines = await startMachines();
  const [registry, hook, guest] = await Promise.all(
    [redis.port, machines.port, agent.port].map((port) => startRelay(port)),
  );
  if (!registry || !hook || !guest) return expect.unreachable();
  const database = scenes++;
  const start = (redisPort: number, hookPort: number, waitedFor: number) =>
    startGateway({
      args: [
        ...[`--redis=redis://127.0.0.1:${redisPort}/${database}`, `--redis-replicas=${waitedFor}`],
        ...['hook', 'kill-hook', 'resume-hook'].map((name) => `--${name}=http://127.0.0.1:${hookPort}/`),
        ...['--hook-timeout=2', '--response-timeout=5', '--default-timeout=90000'],
      ],
    });
  const [gateway, other] = await Promise.all([
    start(registry.port, hook.port, replicas),
    start(redis.port, machines.port, 0),
  ]);
  const all = [gateway, other, registry, hook, guest, machines];
  return {
    ...{ gateway, other, machines, relays: { registry, hook, guest } },
    async [Symbol.asyncDispose]() {
      for (const each of all) await each[Symbol.asyncDispose]();
    },
  };
}

/** What clients do, what must be so before, and in which phase the sandbox is when it was answered with 2xx. */
interface Operation {
  readonly from?: 'nothing' | 'paused';
  run(gateway: TestGateway, id: string, scene: Scene): Promise<Pick<Answer, 'status' | 'text'>>;
  readonly ends: RegExp;
  /** Whether it is not over when it is answered. */
  readonly isBegun?: true;
  /** What it reaches besides the registry. */
  readonly reaches: readonly Place[];
}

const reach = async ({ url }: TestGateway, id: string) => {
  const response = await fetch(url, { headers: toSandbox(id) });
  return { status: response.status, text: await response.text() };
};

const OPERATIONS: Readonly<Record<string, Operation>> = {
  register: {
    from: 'nothing',
    run: (gateway, sandboxID, { relays }) =>
      gateway.call('POST /sandboxes', {
        sandboxID,
        address: '127.0.0.1',
        port: relays.guest.port,
        timeout: 90_000,
      }),
    ends: /running/,
    reaches: [],
  },
  look: { run: (gateway, id) => gateway.call(`GET /sandboxes/${id}`), ends: /running/, reaches: [] },
  list: { run: (gateway) => gateway.call('GET /v2/sandboxes?limit=1000'), ends: /running/, reaches: [] },
  timeout: {
    run: (gateway, id) => gateway.call(`POST /sandboxes/${id}/timeout`, { timeout: 99_000 }),
    ends: /running/,
    reaches: [],
  },
  request: { run: reach, ends: /running/, reaches: ['guest'] },
  metrics: { run: (gateway) => gateway.call('GET /gateway/metrics'), ends: /running/, reaches: [] },
  pause: {
    run: (gateway, id) => gateway.call(`POST /sandboxes/${id}/pause`),
    ends: /paused/,
    reaches: ['hook', 'guest'],
  },
  expiry: {
    run: (gateway, id) => gateway.call(`POST /sandboxes/${id}/timeout`, { timeout: 0 }),
    ends: /paused/,
    isBegun: true,
    reaches: ['hook', 'guest'],
  },
  resume: {
    from: 'paused',
    run: (gateway, id) => gateway.call(`POST /sandboxes/${id}/resume`, { timeout: 90_000 }),
    ends: /running/,
    reaches: ['hook', 'guest'],
  },
  wake: { from: 'paused', run: reach, ends: /running/, reaches: ['hook', 'guest'] },
  remove: {
    run: (gateway, id) => gateway.call(`DELETE /sandboxes/${id}`),
    ends: /gone/,
    reaches: ['hook'],
  },
};

/** The phase of a sandbox in which nothing is under way. */
async function rest(
  gateway: TestGateway,
  id: string,
  isIt = (phase: string) => RESTING.includes(phase),
): Promise<string> {
  const ask = async () => {
    const { status, body } = await gateway.call(`GET /sandboxes/${id}`);
    return status === 404 ? 'gone' : String(body.phase);
  };
  return until(`'${id}' rests`, ask, isIt);
}

const sockets = (gateway: TestGateway) =>
  openFiles(gateway.pid).filter((name) => name.startsWith('socket:')).length;

async function prepare(scene: Scene, id: string, from: Operation['from']): Promise<void> {
  if (from === 'nothing') return;
  await scene.other.register(id, scene.relays.guest.port, { timeout: 90_000 });
  if (from === 'paused') expect((await scene.other.call(`POST /sandboxes/${id}/pause`)).status).toBe(204);
}

/** One operation with one fault; returns whether it was met. */
async function meet(scene: Scene, id: string, operation: Operation, place: Place, fault: RelayFault) {
  const { gateway, other, relays } = scene;
  await prepare(scene, id, operation.from);
  using injected = relays[place].inject(fault);
  const asked = operation.run(gateway, id, scene);
  // A guest that is silent has its limits, which test/attack/gateway/guest.test.ts is about.
  const isSilent = place === 'guest' && fault.kind === 'stall';
  if (isSilent) await Promise.race([asked, until('it is silent', () => injected.hasFired)]);
  if (isSilent) relays[place].reset();
  const answer = await within(LIMIT_MS, asked, () => expect.unreachable('it hangs'));
  const { hasFired } = injected;
  injected[Symbol.dispose]();
  // What was changed on its way may be what it has become.
  if (answer.status < 300 && fault.kind !== 'garble') {
    const isEnd = (phase: string) => operation.ends.test(phase);
    expect(await rest(other, id, operation.isBegun ? isEnd : undefined)).toMatch(operation.ends);
  }
  if (answer.status >= 300) expect(answer.text).toMatch(/^\{/);
  if (place === 'hook' && REPEATED.includes(fault.kind)) expect(answer.status).toBeLessThan(300);
  // What the fault has left open ends, as it does when the network is whole again.
  relays[place].reset();
  const health = async () => (await fetch(`${gateway.url}/gateway/health`)).status;
  await until('the registry is reached', health, (status) => status === 204);
  if (fault.kind !== 'garble') await rest(other, id);
  return hasFired;
}

/** Of the connection to a hook: it is asked again, once, for the same attempt. */
const REPEATED: readonly string[] = ['delay', 'cut', 'reset', 'repeat'];

/** Each event of a sandbox has been told as one attempt, however often. */
function expectOnce(calls: readonly HookCall[], ids: ReadonlySet<string>): void {
  const attempts = new Map<string, string>();
  for (const { sandboxID, event, expiryID } of calls.filter((call) => ids.has(call.sandboxID))) {
    const known = attempts.get(`${sandboxID} ${event}`) ?? expiryID;
    expect(expiryID, `${sandboxID} ${event}`).toBe(known);
    attempts.set(`${sandboxID} ${event}`, known);
  }
}

/** A hook that is silent is another attempt. */
const isOneAttempt = ({ kind }: RelayFault, place: Place) =>
  kind !== 'garble' && !(place === 'hook' && kind === 'stall');

test.concurrent.each(Object.keys(PIECES) as Path[])(
  'faults of the connection to the %s',
  TIMEOUT,
  async (path) => {
    const isReplicated = path === 'replicated registry';
    const place = isReplicated ? 'registry' : path;
    await using scene = await startScene(isReplicated ? 1 : 0);
    const { gateway, machines } = scene;
    const before = sockets(gateway);
    let tried = 0;
    const [met, exact] = [new Set<string>(), new Set<string>()];
    for (const [name, operation] of Object.entries(OPERATIONS)) {
      if (place !== 'registry' && !operation.reaches.includes(place)) continue;
      for (const [index, fault] of sampled(faultCases(PIECES[path]), `${path} ${name}`).entries()) {
        const id = `${name}-${index}`;
        const hasFired = await meet(scene, id, operation, place, fault).catch((error: unknown) => {
          throw new Error(`${id}, ${JSON.stringify(fault)}: ${messageOf(error)}`, { cause: error });
        });
        if (hasFired) met.add(id);
        if (isOneAttempt(fault, place)) exact.add(id);
        tried += 1;
      }
    }
    process.stderr.write(`${path}: ${met.size} of ${tried} faults met\n`);
    expect(met.size).toBeGreaterThan(0);
    expectOnce(machines.calls, exact);
    await until(
      'no socket is left',
      () => sockets(gateway),
      (count) => count <= before + 2,
    );
  },
);
