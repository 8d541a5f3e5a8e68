import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { scratch } from '../fixtures/scratch.ts';
import { type Answer, startGateway, type TestGateway } from './gateway.ts';
import { startGuests } from './guests.ts';
import { phase, record, told } from './hook.ts';

const SANDBOXES = 20;
const CYCLES = 10;

/** A gateway that is killed again and again, and whoever calls it tries until it answers. */
class Mortal {
  gateway: TestGateway;
  deaths = 0;
  readonly #start: (port: number) => Promise<TestGateway>;

  constructor(gateway: TestGateway, start: (port: number) => Promise<TestGateway>) {
    this.gateway = gateway;
    this.#start = start;
  }

  async killNow(): Promise<void> {
    const { port } = this.gateway;
    await this.gateway.kill('SIGKILL');
    this.deaths++;
    this.gateway = await this.#start(port);
  }

  async call(operation: string, body?: unknown): Promise<Answer> {
    for (;;) {
      const answer = await this.gateway.call(operation, body).catch(() => null);
      if (answer && answer.status < 500) return answer;
      await delay(20);
    }
  }
}

test('killed at any moment of 200 lives: no deadline is lost, none fires twice', {
  timeout: 300_000,
}, async () => {
  const directory = scratch();
  const file = join(directory, 'told');
  // Long enough for a kill to hit it.
  const hook = `sleep 0.02; ${record(file)}; sleep 0.02`;
  const start = (port: number) => startGateway({ directory, port, args: [`--hook=${hook}`] });
  await using guests = await startGuests(SANDBOXES);
  const mortal = new Mortal(await start(0), start);
  let living = SANDBOXES;

  const liveOnce = async (id: string, port: number, cycle: number): Promise<void> => {
    const registration = {
      sandboxID: id,
      address: '127.0.0.1',
      port,
      timeout: 600,
      metadata: { cycle: `${cycle}` },
    };
    expect((await mortal.call('POST /sandboxes', registration)).status).toBe(201);
    expect((await mortal.call(`POST /sandboxes/${id}/timeout`, { timeout: 1000 })).status).toBe(204);
    const set = Date.parse((await mortal.call(`GET /sandboxes/${id}`)).body.endAt);
    expect((await mortal.call(`POST /sandboxes/${id}/refreshes`, { duration: 2000 })).status).toBe(204);
    const extended = Date.parse((await mortal.call(`GET /sandboxes/${id}`)).body.endAt);
    expect(extended).toBeGreaterThan(set + 900_000);
    expect(Date.parse((await mortal.call(`GET /sandboxes/${id}`)).body.endAt)).toBe(extended);
    // When its answer was lost it may have been heard: then it is too late for a second one.
    const ended = await mortal.call(`POST /sandboxes/${id}/timeout`, { timeout: 0 });
    expect([204, 404]).toContain(ended.status);
    while ((await mortal.call(`GET /sandboxes/${id}`)).body.phase !== 'paused') await delay(20);
  };

  const lives = guests.ports.map(async (port, index) => {
    for (let cycle = 0; cycle < CYCLES; cycle++) await liveOnce(`s${index}`, port, cycle);
    living--;
  });
  const killing = (async () => {
    while (living > 0) {
      await delay(Math.random() * 1500);
      await mortal.killNow();
    }
  })();
  await Promise.all([...lives, killing]);

  const expected = Array.from({ length: SANDBOXES * CYCLES }, (_, index) => [
    `s${index % SANDBOXES}`,
    `${Math.floor(index / SANDBOXES)}`,
  ]);
  const heard = told(file).map((line) => [
    line.sandboxID,
    (line as unknown as { metadata: { cycle: string } }).metadata.cycle,
  ]);
  expect(heard.toSorted()).toEqual(expected.toSorted());
  expect(new Set(told(file).map(({ expiryID }) => expiryID)).size).toBe(SANDBOXES * CYCLES);
  expect(guests.ports.every((_, index) => guests.isFrozen(index))).toBe(true);
  expect(mortal.deaths).toBeGreaterThan(5);
  await phase(mortal.gateway, 's0', 'paused');
  await mortal.gateway.kill('SIGTERM');
});

test('what is to happen while nobody is there happens when somebody comes back', async () => {
  const directory = scratch();
  const file = join(directory, 'told');
  await using guests = await startGuests(1);
  const first = await startGateway({ directory, args: [`--hook=${record(file)}`] });
  await first.register('one', guests.ports[0] ?? 0, { timeout: 1 });
  await first.kill('SIGKILL');
  await delay(1000);
  await using second = await startGateway({ directory, args: [`--hook=${record(file)}`] });
  await phase(second, 'one', 'paused');
  expect(told(file)).toHaveLength(1);
});

test('a second gateway on the same file is told so', async () => {
  const directory = scratch();
  await using _first = await startGateway({ directory });
  await expect(startGateway({ directory })).rejects.toThrow('gateway exited with 1');
});
