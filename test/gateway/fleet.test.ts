import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { json } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, onTestFinished, type TestOptions, test } from 'vitest';
import { scratch } from '../support/machine/scratch.ts';
import { startAgent } from '../support/programs/agent.ts';
import { startGateway, type TestGateway, toSandbox } from '../support/programs/gateway.ts';
import { owned } from '../support/programs/owned.ts';
import { freePort } from '../support/servers/free-port.ts';
import { startRedis } from '../support/servers/redis-server.ts';
import { until } from '../support/until.ts';

/* Two gateways, one Redis and a model of the host: its machines and the records are compared, whatever is killed. */

/** How long gateways and Redis are killed, in seconds: ENVD_GATEWAY_KILLS=300 runs it. */
const SECONDS = Number(process.env.ENVD_GATEWAY_KILLS ?? 0);
const SANDBOXES = Number(process.env.ENVD_GATEWAY_SANDBOXES ?? 200);
const OWNERS = Number(process.env.ENVD_GATEWAY_OWNERS ?? 10);
/** An owner may have so many sandboxes: some more than the platform registers for him. */
const QUOTA = Math.ceil(SANDBOXES / OWNERS) + 10;
/** Between the recovery of what was killed and the next kill, in ms. */
const PAUSE_MS = 1500;
/** The gateways compare at this interval, and remove a machine without a record after it, in seconds. */
const COMPARED_S = 20;
/** What takes longer than this is taken to be leaked, in ms. */
const SETTLED_MS = 240_000;

/** The machines of all hosts, and the hooks that make, remove and list them. */
class Host {
  readonly machines = new Set<string>();
  readonly removed = new Set<string>();
  readonly #port: number;
  readonly #made = new Map<string, string>();
  #url = '';
  created = 0;

  /** @param port is where the daemons of all machines are */
  constructor(port: number) {
    this.#port = port;
  }

  get flags(): readonly string[] {
    return ['create-hook', 'kill-hook', 'list-hook'].map((name) => `--${name}=${this.#url}`);
  }

  async start(): Promise<void> {
    const server = createServer(async (request, response) => {
      const asked = (await json(request)) as { readonly event: string; readonly sandboxID: string };
      // A machine takes a moment.
      if (asked.event !== 'list') await delay(20);
      response.end(this.#answer(asked, String(request.headers['idempotency-key'])));
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    this.#url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
    onTestFinished(() => {
      server.closeAllConnections();
      server.close();
    });
  }

  #answer({ event, sandboxID }: { readonly event: string; readonly sandboxID: string }, key: string): string {
    if (event === 'list') return [...this.machines].join('\n');
    if (event === 'create') return this.#create(sandboxID, key);
    this.removed.add(sandboxID);
    this.machines.delete(sandboxID);
    return '';
  }

  /** The same key has the same answer, and makes no second machine. */
  #create(id: string, key: string): string {
    const made = this.#made.get(key) ?? JSON.stringify({ address: '127.0.0.1', port: this.#port });
    if (!this.#made.has(key)) {
      this.machines.add(id);
      this.created++;
    }
    this.#made.set(key, made);
    return made;
  }
}

const keyOf = (owner: number) => `key-of-owner-${owner}`;
const nameOf = (owner: number) => `owner-${owner}`;
const pick = (below: number) => Math.floor(Math.random() * below);

class Fleet {
  readonly gateways: TestGateway[] = [];
  readonly #directory = scratch();
  readonly #flags: readonly string[];
  readonly #host: Host;
  /** Sandboxes that somebody uses: nobody has ended them, and their time is not up. */
  readonly used = new Set<string>();
  /** Sandboxes whose time is up after some seconds. */
  readonly brief = new Set<string>();
  /** Answers that no state of the system makes right. */
  readonly wrong: string[] = [];
  readonly counts = { right: 0, refused: 0, created: 0, deleted: 0, foreign: 0, beyond: 0 };

  constructor(host: Host, flags: readonly string[]) {
    this.#host = host;
    this.#flags = flags;
  }

  async start(index: number, port: number): Promise<void> {
    const options = { directory: this.#directory, port, args: this.#flags };
    this.gateways[index] = await until(
      'a gateway starts',
      () => startGateway(options).catch(() => null),
      Boolean,
      SETTLED_MS,
    );
  }

  /** Any of the gateways; one that is killed is not answered by. */
  call(operation: string, body?: unknown, owner?: number) {
    const headers: Record<string, string> = owner === undefined ? {} : { 'x-api-key': keyOf(owner) };
    return this.gateways[pick(this.gateways.length)]?.call(operation, body, headers).catch(() => null);
  }

  /** The platform makes a machine and registers it. */
  async register(index: number, port: number): Promise<void> {
    const sandboxID = `box-${index}`;
    this.#host.machines.add(sandboxID);
    const owner = nameOf(index % OWNERS);
    const body = {
      sandboxID,
      address: '127.0.0.1',
      port,
      owner,
      host: `host-${index % 100}`,
      timeout: 36_000,
    };
    const answer = await this.call('POST /sandboxes', { ...body, onExpiry: 'remove' });
    if (answer?.status !== 201) throw new Error(`register: ${answer?.status} ${answer?.text}`);
    this.used.add(sandboxID);
  }

  /** A request to a sandbox that is used, and in between one to a sandbox of somebody else. */
  async ask(): Promise<void> {
    const index = pick(SANDBOXES);
    const id = `box-${index}`;
    try {
      const url = this.gateways[pick(2)]?.url ?? '';
      const response = await fetch(url, { headers: toSandbox(id), signal: AbortSignal.timeout(10_000) });
      const text = await response.text();
      const isRight = response.status === 200 && text === 'ok';
      if (!isRight && (response.status < 500 || text.includes('was not found')))
        this.wrong.push(`${id}: ${response.status} ${text.slice(0, 200)}`);
      this.counts[isRight ? 'right' : 'refused']++;
    } catch {
      // The gateway was killed.
      this.counts.refused++;
      await delay(20);
    }
    const foreign = await this.call(`GET /sandboxes/${id}`, undefined, (index + 1) % OWNERS);
    if (foreign && OWNERS > 1 && foreign.status < 500 && foreign.status !== 404)
      this.wrong.push(`${id} is shown to another owner: ${foreign.status}`);
    if (foreign?.status === 404) this.counts.foreign++;
  }

  /** A client creates a sandbox, which it removes at some time, keeps, or lets expire. */
  async create(): Promise<void> {
    const owner = pick(OWNERS);
    const isBrief = Math.random() < 0.3;
    const timeout = isBrief ? 5 : 36_000;
    const answer = await this.call('POST /v2/sandboxes', { templateID: 'base', timeout }, owner);
    if (answer?.status === 429) this.counts.beyond++;
    if (answer?.status !== 201) return;
    const id = String(answer.body.sandboxID);
    this.counts.created++;
    if (isBrief) this.brief.add(id);
    else this.used.add(id);
    if (isBrief || Math.random() < 0.3) return;
    await delay(pick(1000));
    // From now on nobody uses it, also if the answer is lost.
    this.used.delete(id);
    this.counts.deleted++;
    await this.call(`DELETE /sandboxes/${id}`, undefined, owner);
  }

  /** The ids of all records, or of those of an owner. */
  async records(owner?: number): Promise<ReadonlySet<string>> {
    const ids = new Set<string>();
    for (let token = ''; ; ) {
      const path = `/sandboxes?limit=1000${token && `&nextToken=${token}`}`;
      const page = await this.gateways[0]?.call(
        `GET ${path}`,
        undefined,
        owner === undefined ? {} : { 'x-api-key': keyOf(owner) },
      );
      if (page?.status !== 200) throw new Error(`list: ${page?.status} ${page?.text}`);
      for (const { sandboxID } of page.body as readonly { readonly sandboxID: string }[]) ids.add(sandboxID);
      token = page.headers.get('x-next-token') ?? '';
      if (token === '') return ids;
    }
  }
}

const without = (ids: Iterable<string>, others: ReadonlySet<string>) =>
  [...ids].filter((id) => !others.has(id));

const onDemand: TestOptions =
  SECONDS > 0 ? {} : { skip: true, meta: { notRun: 'ENVD_GATEWAY_KILLS=300 is not set' } };

test('many sandboxes of many owners: nothing is leaked, and nothing removed that is used', {
  ...onDemand,
  timeout: (SECONDS + 900) * 1000,
}, async () => {
  const redis = await owned(startRedis('--appendfsync', 'always'));
  const agent = await owned(startAgent());
  const host = new Host(agent.port);
  await host.start();
  const keys = join(scratch(), 'keys');
  const owners = Array.from({ length: OWNERS }, (_, owner) => owner);
  const lines = owners.map((owner) => `client ${nameOf(owner)} ${keyOf(owner)}\n`);
  writeFileSync(keys, `platform another-key\n${lines.join('')}quota * sandboxes=${QUOTA}\n`);
  const compared = [`--list-interval=${COMPARED_S}`, '--reconcile=remove', `--reconcile-grace=${COMPARED_S}`];
  const fleet = new Fleet(host, [`--redis=${redis.url}`, `--key-file=${keys}`, ...host.flags, ...compared]);
  for (const index of [0, 1]) await fleet.start(index, await freePort());
  onTestFinished(async () => {
    for (const each of fleet.gateways) await each.kill();
  });
  let next = 0;
  const registrars = Array.from({ length: 16 }, async () => {
    while (next < SANDBOXES) await fleet.register(next++, agent.port);
  });
  await Promise.all(registrars);

  const end = performance.now() + SECONDS * 1000;
  const isOver = () => performance.now() > end;
  const orphans: string[] = [];
  const repeat = async (work: () => Promise<void>) => {
    while (!isOver()) await work();
  };
  const orphan = async () => {
    await delay(1000);
    // A machine whose registration was lost with the program of the platform.
    orphans.push(`orphan-${orphans.length}`);
    host.machines.add(`orphan-${orphans.length - 1}`);
  };
  let kills = 0;
  const kill = async () => {
    await delay(PAUSE_MS);
    const index = kills++ % 3;
    const gateway = fleet.gateways[index];
    if (gateway) {
      await gateway.kill();
      await fleet.start(index, gateway.port);
    } else {
      await redis.stop('SIGKILL');
      await redis.start();
    }
  };
  await Promise.all([
    ...Array.from({ length: 4 }, () => repeat(() => fleet.ask())),
    ...Array.from({ length: 8 }, () => repeat(() => fleet.create())),
    ...[repeat(orphan), repeat(kill)],
  ]);

  const differences = async () => {
    const records = await fleet.records();
    const late = [...fleet.brief].filter((id) => host.machines.has(id));
    return { leaked: without(host.machines, records), missing: without(records, host.machines), late };
  };
  const settling = performance.now();
  const isSettled = (found: Awaited<ReturnType<typeof differences>>) =>
    found.leaked.length + found.missing.length + found.late.length === 0;
  // What was killed last may not answer yet.
  const ask = () => differences().catch(() => null);
  await until('machines and records agree', ask, (found) => found !== null && isSettled(found), SETTLED_MS);
  const settled = Math.round((performance.now() - settling) / 1000);
  const records = await fleet.records();
  process.stderr.write(
    `${SANDBOXES} sandboxes of ${OWNERS} owners, ${kills} kills: ${JSON.stringify(fleet.counts)}, ${host.created} machines made, ${host.removed.size} removed, ${orphans.length} orphans, ${fleet.brief.size} brief, ${fleet.used.size} used at the end; settled after ${settled} s\n`,
  );
  expect(fleet.wrong).toEqual([]);
  for (const owner of owners) expect((await fleet.records(owner)).size).toBeLessThanOrEqual(QUOTA);
  expect(without(fleet.used, records)).toEqual([]);
  expect([...fleet.used].filter((id) => host.removed.has(id))).toEqual([]);
  expect(orphans.filter((id) => !host.removed.has(id))).toEqual([]);
});
