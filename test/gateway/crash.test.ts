import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { scratch } from '../support/machine/scratch.ts';
import { type Answer, startGateway, type TestGateway } from '../support/programs/gateway.ts';
import { startGuests } from '../support/programs/guests.ts';
import { freePort } from '../support/servers/free-port.ts';
import { hookCalls, phase, record } from '../support/servers/hook.ts';
import { until } from '../support/until.ts';

const SANDBOXES = 10;
const CYCLES = 20;

/** A gateway that is killed and restarted again and again; a call is repeated until it is answered. */
class KilledGateway {
  gateway: TestGateway;
  deaths = 0;
  readonly #start: (port: number) => Promise<TestGateway>;
  #answersLeft = 0;
  #killed: Promise<void> | null = null;

  constructor(gateway: TestGateway, start: (port: number) => Promise<TestGateway>) {
    this.gateway = gateway;
    this.#start = start;
    this.#live();
  }

  /** Killed after a number of responses, not after a time, so that a slow machine gets on, too. */
  #live(): void {
    this.#killed = null;
    this.#answersLeft = 1 + Math.floor(Math.random() * 80);
  }

  async #kill(): Promise<void> {
    // At a random moment.
    await delay(Math.random() * 60);
    const { port } = this.gateway;
    await this.gateway.kill('SIGKILL');
    this.deaths++;
    this.gateway = await this.#start(port);
    this.#live();
  }

  async call(operation: string, body?: unknown): Promise<Answer> {
    for (;;) {
      const answer = await this.gateway.call(operation, body).catch(() => null);
      if (answer && answer.status < 500) {
        if (--this.#answersLeft <= 0) this.#killed ??= this.#kill();
        return answer;
      }
      // The gateway is dead, or answers 5xx.
      await (this.#killed ?? delay(20));
    }
  }

  /** Polls the phases of all sandboxes until `enough`. */
  async watch(see: (phases: ReadonlyMap<string, string>) => void, enough: () => boolean): Promise<void> {
    while (!enough()) {
      const { body } = await this.call('GET /sandboxes');
      const listed = body as readonly { readonly sandboxID: string; readonly phase: string }[];
      see(new Map(listed.map((each) => [each.sandboxID, each.phase])));
      // Each poll counts as a response, after which it may be killed.
      await delay(50);
    }
  }

  async end(): Promise<void> {
    await this.#killed;
    await this.gateway.kill('SIGTERM');
  }
}

test('a gateway killed at random moments of 200 expiries: each hook runs once', async () => {
  const directory = scratch();
  const file = join(directory, 'told');
  // Long enough for a kill to come in between.
  const hook = `sleep 0.02; ${record(file)}; sleep 0.02`;
  const start = (port: number) => startGateway({ directory, port, args: [`--hook=${hook}`] });
  await using guests = await startGuests(SANDBOXES);
  const gateways = new KilledGateway(await start(await freePort()), start);
  const waiting = new Map<string, () => void>();
  let living = SANDBOXES;

  const endAt = async (id: string) => Date.parse((await gateways.call(`GET /sandboxes/${id}`)).body.endAt);
  const liveOnce = async (id: string, port: number, cycle: number): Promise<void> => {
    const registration = {
      sandboxID: id,
      address: '127.0.0.1',
      port,
      timeout: 600,
      metadata: { cycle: `${cycle}` },
    };
    expect((await gateways.call('POST /sandboxes', registration)).status).toBe(201);
    expect((await gateways.call(`POST /sandboxes/${id}/timeout`, { timeout: 1000 })).status).toBe(204);
    const set = await endAt(id);
    expect((await gateways.call(`POST /sandboxes/${id}/refreshes`, { duration: 2000 })).status).toBe(204);
    const extended = await endAt(id);
    expect(extended).toBeGreaterThan(set + 500_000);
    // If the response was lost, the repeated call may come after the expiry.
    const ended = await gateways.call(`POST /sandboxes/${id}/timeout`, { timeout: 0 });
    expect([204, 404]).toContain(ended.status);
    await new Promise<void>((resolve) => waiting.set(id, resolve));
  };

  const lives = guests.ports.map(async (port, index) => {
    for (let cycle = 0; cycle < CYCLES; cycle++) await liveOnce(`s${index}`, port, cycle);
    living--;
  });
  const see = (phases: ReadonlyMap<string, string>) => {
    for (const [id, resolve] of waiting) {
      if (phases.get(id) !== 'paused') continue;
      waiting.delete(id);
      resolve();
    }
  };
  await Promise.all([...lives, gateways.watch(see, () => living === 0)]);
  await gateways.end();

  const expected = Array.from({ length: SANDBOXES * CYCLES }, (_, index) => [
    `s${index % SANDBOXES}`,
    `${Math.floor(index / SANDBOXES)}`,
  ]);
  const heard = hookCalls(file).map(({ sandboxID, metadata }) => [sandboxID, metadata.cycle]);
  expect(heard.toSorted()).toEqual(expected.toSorted());
  expect(new Set(hookCalls(file).map(({ expiryID }) => expiryID)).size).toBe(SANDBOXES * CYCLES);
  expect(guests.ports.every((_, index) => guests.isFrozen(index))).toBe(true);
  expect(gateways.deaths).toBeGreaterThan(10);
});

test('a sandbox that expires while no gateway runs is expired by the next one', async () => {
  const directory = scratch();
  const file = join(directory, 'told');
  await using guests = await startGuests(1);
  const first = await startGateway({ directory, args: [`--hook=${record(file)}`] });
  const { body } = await first.register('one', guests.ports[0] ?? 0, { timeout: 1 });
  await first.kill('SIGKILL');
  await until('its time is up', () => Date.now() > Date.parse(body.endAt));
  await using second = await startGateway({ directory, args: [`--hook=${record(file)}`] });
  await phase(second, 'one', 'paused');
  expect(hookCalls(file)).toHaveLength(1);
});

test('a second gateway on the same file does not start', async () => {
  const directory = scratch();
  await using _first = await startGateway({ directory });
  await expect(startGateway({ directory })).rejects.toThrow('gateway exited with 1');
});

test('a gateway that is stopped during an expiry leaves it to the next one', async () => {
  const directory = scratch();
  const [file, open] = [join(directory, 'told'), join(directory, 'open')];
  const hook = `${record(file)}; while [ ! -e '${open}' ]; do sleep 0.01; done`;
  await using guests = await startGuests(2);
  const [standing = 0, telling = 0] = guests.ports;
  const first = await startGateway({ directory, args: [`--hook=${hook}`] });
  await first.register('telling', telling, { timeout: 0 });
  await phase(first, 'telling', 'committed');
  const { reached, release } = guests.hold('/freeze');
  await first.register('standing', standing, { timeout: 0 });
  await reached;
  // If it waited for them, the stop would take too long and end with another code.
  expect(await first.kill('SIGTERM')).toEqual({ code: 0, signal: null });
  release();
  await using second = await startGateway({ directory, args: [`--hook=${hook}`] });
  writeFileSync(open, '');
  for (const id of ['telling', 'standing']) await phase(second, id, 'paused');
  expect(
    hookCalls(file)
      .map(({ sandboxID }) => sandboxID)
      .toSorted(),
  ).toEqual(['standing', 'telling']);
});
