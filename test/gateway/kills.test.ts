import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, onTestFinished, type TestOptions, test } from 'vitest';
import { scratch } from '../support/machine/scratch.ts';
import { startAgent } from '../support/programs/agent.ts';
import { startGateway, type TestGateway, toSandbox } from '../support/programs/gateway.ts';
import { owned } from '../support/programs/owned.ts';
import { freePort } from '../support/servers/free-port.ts';
import { hookCalls, record } from '../support/servers/hook.ts';
import { type Nginx, startNginx } from '../support/servers/nginx.ts';
import { startRedis } from '../support/servers/redis-server.ts';
import { info, startRedisSet } from '../support/servers/redis-set.ts';
import { until } from '../support/until.ts';

/** How long gateways, nginx and Redis are killed, in seconds: ENVD_GATEWAY_KILLS=300 runs it. */
const SECONDS = Number(process.env.ENVD_GATEWAY_KILLS ?? 0);
const LIVING = 8;
/** Between the recovery of what was killed and the next kill, in ms. */
const PAUSE_MS = 1500;

/** Where the records are, and what kills the server that has them. */
interface Engine {
  readonly flags: readonly string[];
  kill(): Promise<void>;
}

async function oneRedis(): Promise<Engine> {
  // Otherwise Redis answers before it has written, while it still syncs what it wrote before.
  const redis = await owned(startRedis('--appendfsync', 'always'));
  const kill = async () => {
    await redis.stop('SIGKILL');
    await delay(300);
    await redis.start();
  };
  return { flags: [`--redis=${redis.url}`], kill };
}

async function withSentinels(): Promise<Engine> {
  const set = await owned(startRedisSet(2));
  const kill = async () => {
    const master = await set.master();
    await master.stop('SIGKILL');
    const others = set.servers.filter((server) => server !== master);
    await until('another one takes over', async () => {
      const roles = await Promise.all(others.map(({ url }) => info(url, 'replication')));
      return roles.some((role) => role.includes('role:master'));
    });
    await master.start();
  };
  return { flags: set.flags, kill };
}

/** A sandbox that answers with its name. */
async function living(name: string): Promise<number> {
  const server: Server = createServer((_request, response) => response.end(name)).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

class Scene {
  readonly file = `${scratch()}/told`;
  readonly #directory = scratch();
  readonly #flags: readonly string[];
  readonly gateways: TestGateway[] = [];
  nginx: Nginx | undefined;
  /** Answers that no state of the system makes right. */
  readonly wrong: string[] = [];
  readonly counts = { right: 0, refused: 0 };
  /** Registered to expire, with an answer. */
  readonly expiring: string[] = [];
  /** Registered to stay, with an answer. */
  readonly staying: string[] = [];

  constructor({ flags }: Engine) {
    this.#flags = [...flags, `--hook=${record(this.file)}`];
  }

  async startGateway(index: number, port: number): Promise<void> {
    const options = { directory: this.#directory, port, args: this.#flags };
    this.gateways[index] = await until('a gateway starts', () => startGateway(options).catch(() => null));
  }

  async startNginx(): Promise<void> {
    const [first, second] = this.gateways;
    this.nginx = await startNginx(first?.port ?? 0, { otherGateway: second?.port ?? 0 });
  }

  async start(): Promise<void> {
    for (const index of [0, 1]) await this.startGateway(index, await freePort());
    await this.startNginx();
    onTestFinished(async () => {
      await this.nginx?.[Symbol.asyncDispose]();
      for (const each of this.gateways) await each.kill();
    });
  }

  /** One request through nginx; whether it was answered by its sandbox. */
  async ask(id: string): Promise<boolean> {
    try {
      const url = `http://127.0.0.1:${this.nginx?.port}/a/b`;
      const response = await fetch(url, { headers: toSandbox(id), signal: AbortSignal.timeout(10_000) });
      const text = await response.text();
      const isRight = response.ok && text === id;
      const isRefusal = response.status >= 500 && !/was not found|is paused/.test(text);
      if (!isRight && !isRefusal) this.wrong.push(`${id}: ${response.status} ${text.slice(0, 200)}`);
      this.counts[isRight ? 'right' : 'refused']++;
      return isRight;
    } catch {
      // The connection was closed with nginx, or could not be made.
      this.counts.refused++;
      return false;
    }
  }

  /** Registers another one, by either gateway; remembers it among `answered` if that was answered. */
  async register(name: string, answered: string[], port: number, timeout: number, turn: number) {
    const answer = await this.gateways[turn % 2]
      ?.call('POST /sandboxes', { sandboxID: name, address: '127.0.0.1', port, timeout })
      .catch(() => null);
    if (answer?.status === 201) answered.push(name);
  }

  /** Which of these sandboxes are not known. */
  async lost(names: readonly string[]): Promise<readonly string[]> {
    const lost: string[] = [];
    for (const name of names) {
      const status = await until(
        'the registry answers',
        async () => (await this.gateways[0]?.call(`GET /sandboxes/${name}`))?.status,
        (answered) => answered !== 503,
      );
      if (status !== 200) lost.push(`${name}: ${status}`);
    }
    return lost;
  }
}

async function load(scene: Scene, agentPort: number, isOver: () => boolean): Promise<void> {
  const askers = Array.from({ length: 4 }, async (_, asker) => {
    for (let turn = asker; !isOver(); turn++) {
      if (!(await scene.ask(`living-${turn % LIVING}`))) await delay(20);
    }
  });
  const registrar = async (name: string, answered: string[], timeout: number, pauseMs: number) => {
    for (let turn = 0; !isOver(); turn++) {
      await scene.register(`${name}-${turn}`, answered, agentPort, timeout, turn);
      await delay(pauseMs);
    }
  };
  const registrars = [
    registrar('brief', scene.expiring, 1, 200),
    registrar('long', scene.staying, 36_000, 20),
  ];
  await Promise.all([...askers, ...registrars]);
}

/** Kills one after the other; returns how long it took until all were served again, in ms, by what was killed. */
async function kills(scene: Scene, engine: Engine, isOver: () => boolean) {
  const took: Record<string, number[]> = { gateway: [], nginx: [], registry: [] };
  for (let turn = 0; !isOver(); turn++) {
    await delay(PAUSE_MS);
    const victim = (['gateway', 'registry', 'gateway', 'nginx'] as const)[turn % 4] ?? 'nginx';
    const began = performance.now();
    const index = turn % 4 === 0 ? 0 : 1;
    const gateway = scene.gateways[index];
    let revival = Promise.resolve();
    if (victim === 'nginx') {
      await scene.nginx?.[Symbol.asyncDispose]();
      revival = scene.startNginx();
    } else if (victim === 'registry') revival = engine.kill();
    else if (gateway) {
      await gateway.kill();
      revival = scene.startGateway(index, gateway.port);
    }
    await until('all are served again', async () => {
      const answers = Array.from({ length: LIVING }, (_, id) => scene.ask(`living-${id}`));
      return (await Promise.all(answers)).every(Boolean);
    });
    took[victim]?.push(Math.round(performance.now() - began));
    await revival;
  }
  return took;
}

const onDemand: TestOptions =
  SECONDS > 0 ? {} : { skip: true, meta: { notRun: 'ENVD_GATEWAY_KILLS=300 is not set' } };

test.each([
  ['one Redis', oneRedis],
  ['Sentinels', withSentinels],
] as const)(
  'each expiry is once and no answer wrong, whatever is killed: %s',
  {
    ...onDemand,
    timeout: (SECONDS + 300) * 1000,
  },
  async (name, open) => {
    const engine = await open();
    const scene = new Scene(engine);
    await scene.start();
    const agent = await owned(startAgent());
    for (let index = 0; index < LIVING; index++)
      await scene.gateways[0]?.register(`living-${index}`, await living(`living-${index}`), {
        timeout: 36_000,
      });
    const end = performance.now() + SECONDS * 1000;
    const isOver = () => performance.now() > end;
    const [took] = await Promise.all([kills(scene, engine, isOver), load(scene, agent.port, isOver)]);
    const told = () => hookCalls(scene.file).map(({ sandboxID }) => sandboxID);
    expect(await scene.lost(scene.staying)).toEqual([]);
    await until(
      'all are expired',
      () => scene.expiring.filter((id) => !new Set(told()).has(id)),
      (missing) => missing.length === 0,
    );
    const report = Object.entries(took).map(([victim, times]) => {
      const sorted = times.toSorted((a, b) => a - b);
      return `${victim} killed ${times.length} times, served again after ${sorted[sorted.length >> 1]} ms (at most ${sorted.at(-1)})`;
    });
    const { right, refused } = scene.counts;
    process.stderr.write(
      `${[
        `${name}: ${scene.expiring.length} expiries, ${scene.staying.length} that stay, ${right} right answers, ${refused} refused`,
        ...report,
      ].join('\n  ')}\n`,
    );
    expect(scene.wrong).toEqual([]);
    expect(told()).toHaveLength(new Set(told()).size);
  },
);
