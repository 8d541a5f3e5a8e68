import { existsSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { EnvdError } from '../../../../../src/base/errors.ts';
import {
  both,
  type Lane,
  laneOf,
  locking,
  QUICK,
  removing,
} from '../../../../../src/daemon/linux/lanes/lane.ts';
import { Lanes, NoAnswer } from '../../../../../src/daemon/linux/lanes/lanes.ts';
import { scratch } from '../../../../support/machine/scratch.ts';

/** A lane of a mount, as `entering` makes them for mounts that exist. */
const mount = (id: number, kind: 'fuse' | 'network' = 'fuse'): Lane => ({
  mounts: [id],
  keys: [`mount ${id}`, kind],
  patience: 'short',
});

/** Jobs that end when they are told to; `running`: how many do. */
class Jobs {
  running = 0;
  readonly #ends: (() => void)[] = [];

  readonly start = async (): Promise<string> => {
    this.running++;
    await new Promise<void>((end) => this.#ends.push(end));
    this.running--;
    return 'done';
  };

  end(count = this.#ends.length): void {
    for (const end of this.#ends.splice(0, count)) end();
  }
}

/* The tests advance the clock, because on a busy machine each limit may pass in any call. */
beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] }));
afterEach(() => void vi.useRealTimers());

/** Resolves with the outcome of a call whose time is up. */
async function whenLate<T>(call: Promise<T>, limitMs: number): Promise<PromiseSettledResult<T>> {
  const [settled] = await Promise.all([Promise.allSettled([call]), vi.advanceTimersByTimeAsync(limitMs)]);
  return settled[0];
}
const NO_ANSWER = { status: 'rejected', reason: expect.any(NoAnswer) };

const turn = () => new Promise((resolve) => setImmediate(resolve));
const many = <T>(count: number, call: (index: number) => Promise<T>) =>
  Array.from({ length: count }, (_, index) => call(index));

test('two jobs for a mount, three for all FUSE mounts, three for others, thirteen in total', async () => {
  const lanes = new Lanes({ limitMs: 60_000, threads: 16 });
  const [one, two, nfs, files] = [new Jobs(), new Jobs(), new Jobs(), new Jobs()];
  const calls = [
    ...many(5, () => lanes.run(mount(1), one.start)),
    ...many(5, () => lanes.run(mount(2), two.start)),
    ...many(5, () => lanes.run(mount(3, 'network'), nfs.start)),
    ...many(20, () => lanes.run(QUICK, files.start)),
  ];
  await turn();
  expect([one, two, nfs, files].map(({ running }) => running)).toEqual([2, 1, 2, 8]);
  files.end(8);
  await turn();
  expect(files.running).toBe(8);
  one.end(2);
  await turn();
  expect(one.running + two.running).toBe(3);
  while ([one, two, nfs, files].some(({ running }) => running > 0)) {
    for (const jobs of [one, two, nfs, files]) jobs.end();
    await turn();
  }
  expect(new Set(await Promise.all(calls))).toEqual(new Set(['done']));
  expect(lanes.isBusy).toBe(false);
});

test('a small pool has a thread for each kind, and one for nobody', async () => {
  const lanes = new Lanes({ limitMs: 60_000, threads: 4 });
  const [hung, locked, files] = [new Jobs(), new Jobs(), new Jobs()];
  const calls = [
    ...many(3, () => lanes.run(mount(1), hung.start)),
    ...many(3, () => lanes.run(locking(QUICK), locked.start)),
    ...many(3, () => lanes.run(QUICK, files.start)),
  ];
  await turn();
  expect([hung.running, locked.running, files.running]).toEqual([1, 1, 1]);
  while (lanes.isBusy) {
    for (const jobs of [hung, locked, files]) jobs.end();
    await turn();
  }
  await Promise.all(calls);
});

test('three jobs for a directory, of which two change it; six for a tree', async () => {
  const lanes = new Lanes({ limitMs: 60_000, threads: 16 });
  const [one, changes, removals, tree, others] = Array.from({ length: 5 }, () => new Jobs());
  if (!one || !changes || !removals || !tree || !others) throw new Error('five were made');
  const calls = [
    ...many(5, () => lanes.run(locking(laneOf('/home/user/held/a')), changes.start)),
    ...many(5, () => lanes.run(removing('/home/user/held/b'), removals.start)),
    ...many(5, () => lanes.run(laneOf('/home/user/held/c'), one.start)),
    ...many(20, (index) => lanes.run(laneOf(`/home/user/${index}/d`), tree.start)),
    ...many(20, () => lanes.run(laneOf('/home/other/e'), others.start)),
  ];
  await turn();
  const running = () => [changes, removals, one, tree, others].map((jobs) => jobs.running);
  expect(running()).toEqual([2, 0, 1, 3, 3]);
  while (running().some((count) => count > 0)) {
    for (const jobs of [one, changes, removals, tree, others]) jobs.end();
    await turn();
  }
  await Promise.all(calls);
  expect(lanes.isBusy).toBe(false);
});

test('a late result is discarded; its place is free when it has come, not before', async () => {
  const lanes = new Lanes({ limitMs: 20, threads: 16 });
  const jobs = new Jobs();
  const late: string[] = [];
  const calls = many(5, () => lanes.run(mount(1), jobs.start, { discard: (result) => late.push(result) }));
  const outcomes = await Promise.all(calls.map((call) => whenLate(call, 20)));
  expect(outcomes).toEqual(Array(5).fill(NO_ANSWER));
  expect(jobs.running).toBe(2);
  expect(await whenLate(lanes.run(mount(1), jobs.start), 20)).toEqual(NO_ANSWER);
  expect(await lanes.run(mount(2), async () => 'another')).toBe('another');
  expect(jobs.running).toBe(2);
  jobs.end();
  await turn();
  expect(late).toEqual(['done', 'done']);
  expect(await lanes.run(mount(1), async () => 'again')).toBe('again');
});

test('what a look-up returns late is discarded', async () => {
  const lanes = new Lanes({ limitMs: 10, threads: 16 });
  const jobs = new Jobs();
  const late: string[] = [];
  const found = lanes.find(jobs.start, {
    base: laneOf('/home/user/a'),
    discard: (result) => late.push(result),
  });
  expect(await whenLate(found, 10)).toEqual(NO_ANSWER);
  jobs.end();
  await turn();
  expect(late).toEqual(['done']);
});

test('a look-up that may take long asks first whether the mount answers; other failures are its own', async () => {
  const lanes = new Lanes({ limitMs: 10, threads: 16 });
  let found = 0;
  const find = (ask: () => Promise<unknown>) => lanes.find(async () => ++found, { base: mount(1), ask });
  const silent = new Jobs();
  expect(await whenLate(find(silent.start), 10)).toEqual(NO_ANSWER);
  const refusal = new EnvdError('resource_exhausted', 'too many');
  await expect(find(() => Promise.reject(refusal))).rejects.toBe(refusal);
  expect(found).toBe(0);
  await expect(find(() => Promise.reject(new Error('EACCES')))).resolves.toMatchObject({ value: 1 });
  await expect(find(async () => {})).resolves.toMatchObject({ value: 2 });
  silent.end();
});

test('what must be done waits as long as it takes', async () => {
  const lanes = new Lanes({ limitMs: 10, threads: 16 });
  const jobs = new Jobs();
  const calls = many(2, () => lanes.run(mount(1), jobs.start).catch(() => 'late'));
  const closed = lanes.runAtLast(mount(1), async () => 'closed');
  await vi.advanceTimersByTimeAsync(10);
  expect(await Promise.all(calls)).toEqual(['late', 'late']);
  jobs.end();
  await closed;
});

test('a job that fails gives its place back, also when it throws before it begins', async () => {
  const lanes = new Lanes({ limitMs: 60_000, threads: 4 });
  const fail = () => {
    throw new Error('at once');
  };
  for (let round = 0; round < 10; round++) await expect(lanes.run(QUICK, fail)).rejects.toThrow('at once');
  expect(lanes.isBusy).toBe(false);
});

test('too many waiting jobs are resource_exhausted', async () => {
  const lanes = new Lanes({ limitMs: 60_000, threads: 4 });
  const jobs = new Jobs();
  const calls = many(3 + 4096, () => lanes.run(QUICK, jobs.start));
  await expect(lanes.run(QUICK, jobs.start)).rejects.toMatchObject({ kind: 'resource_exhausted' });
  while (lanes.isBusy) {
    jobs.end();
    await turn();
  }
  await Promise.all(calls);
});

test('a job with files of two mounts counts for both, and for no lane of local files', () => {
  expect(both(mount(1), mount(2))).toEqual({
    mounts: [1, 2],
    keys: ['mount 1', 'fuse', 'mount 2'],
    patience: 'short',
  });
  expect(both(locking(QUICK), mount(2))).toEqual(mount(2));
  expect(both(mount(2), locking(QUICK))).toEqual(mount(2));
  expect(both(QUICK, locking(QUICK))).toEqual(locking(QUICK));
});

test('a job that has ended while the event loop could not run was in time', async () => {
  const directory = scratch();
  vi.useRealTimers();
  const lanes = new Lanes({ limitMs: 20, threads: 16 });
  const made = ['one', 'other'].map((name) => join(directory, name));
  const [one = '', other = ''] = made;
  const answers = Promise.all([lanes.run(mount(1), () => mkdir(one)), lanes.inTime(mkdir(other))]);
  // The thread pool does both of them meanwhile.
  const begun = performance.now();
  while (performance.now() < begun + 200 || (!made.every(existsSync) && performance.now() < begun + 60_000));
  await expect(answers).resolves.toHaveLength(2);
});
