import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { type Answer, startGateway, type TestGateway } from '../support/gateway.ts';
import { startGuests } from '../support/guests.ts';
import { phase, record, told } from '../support/hook.ts';
import { scratch } from '../support/scratch.ts';
import { until } from '../support/until.ts';

const SANDBOXES = 10;
const CYCLES = 20;

/** A gateway that is killed again and again, and whoever calls it tries until it answers. */
class Mortal {
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

  /** By what it has done, not by the clock: so it gets on however slow the machine is. */
  #live(): void {
    this.#killed = null;
    this.#answersLeft = 1 + Math.floor(Math.random() * 80);
  }

  async #kill(): Promise<void> {
    // Any moment of what it does is the subject.
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
      // Dead, or not able to answer just now: asked again.
      await (this.#killed ?? delay(20));
    }
  }

  /** The phases of all sandboxes, told again and again until `enough` of them. */
  async watch(see: (phases: ReadonlyMap<string, string>) => void, enough: () => boolean): Promise<void> {
    while (!enough()) {
      const { body } = await this.call('GET /sandboxes');
      const listed = body as readonly { readonly sandboxID: string; readonly phase: string }[];
      see(new Map(listed.map((each) => [each.sandboxID, each.phase])));
      // Not to do nothing else: each look is an answer of its life.
      await delay(50);
    }
  }

  async end(): Promise<void> {
    await this.#killed;
    await this.gateway.kill('SIGTERM');
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
  const waiting = new Map<string, () => void>();
  let living = SANDBOXES;

  const endAt = async (id: string) => Date.parse((await mortal.call(`GET /sandboxes/${id}`)).body.endAt);
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
    const set = await endAt(id);
    expect((await mortal.call(`POST /sandboxes/${id}/refreshes`, { duration: 2000 })).status).toBe(204);
    const extended = await endAt(id);
    expect(extended).toBeGreaterThan(set + 500_000);
    // When its answer was lost it may have been heard: then it is too late for a second one.
    const ended = await mortal.call(`POST /sandboxes/${id}/timeout`, { timeout: 0 });
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
  await Promise.all([...lives, mortal.watch(see, () => living === 0)]);
  await mortal.end();

  const expected = Array.from({ length: SANDBOXES * CYCLES }, (_, index) => [
    `s${index % SANDBOXES}`,
    `${Math.floor(index / SANDBOXES)}`,
  ]);
  const heard = told(file).map(({ sandboxID, metadata }) => [sandboxID, metadata.cycle]);
  expect(heard.toSorted()).toEqual(expected.toSorted());
  expect(new Set(told(file).map(({ expiryID }) => expiryID)).size).toBe(SANDBOXES * CYCLES);
  expect(guests.ports.every((_, index) => guests.isFrozen(index))).toBe(true);
  expect(mortal.deaths).toBeGreaterThan(10);
});

test('what is to happen while nobody is there happens when somebody comes back', async () => {
  const directory = scratch();
  const file = join(directory, 'told');
  await using guests = await startGuests(1);
  const first = await startGateway({ directory, args: [`--hook=${record(file)}`] });
  const { body } = await first.register('one', guests.ports[0] ?? 0, { timeout: 1 });
  await first.kill('SIGKILL');
  await until('its time is up', () => Date.now() > Date.parse(body.endAt));
  await using second = await startGateway({ directory, args: [`--hook=${record(file)}`] });
  await phase(second, 'one', 'paused');
  expect(told(file)).toHaveLength(1);
});

test('a second gateway on the same file is told so', async () => {
  const directory = scratch();
  await using _first = await startGateway({ directory });
  await expect(startGateway({ directory })).rejects.toThrow('gateway exited with 1');
});

test('a gateway that is stopped in the middle leaves it to the next one, as it is', async () => {
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
  // One that waited for them would be cut short, and say so in its code.
  expect(await first.kill('SIGTERM')).toEqual({ code: 0, signal: null });
  release();
  await using second = await startGateway({ directory, args: [`--hook=${hook}`] });
  writeFileSync(open, '');
  for (const id of ['telling', 'standing']) await phase(second, id, 'paused');
  expect(
    told(file)
      .map(({ sandboxID }) => sandboxID)
      .toSorted(),
  ).toEqual(['standing', 'telling']);
});
