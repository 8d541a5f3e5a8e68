import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { readRawEntry } from '../../../../../src/daemon/linux/files/entries.ts';
import { JobBatches } from '../../../../../src/daemon/linux/lanes/batches.ts';
import { type Lane, laneOf } from '../../../../../src/daemon/linux/lanes/lane.ts';
import { native } from '../../../../../src/daemon/linux/system/native.ts';
import { scratch } from '../../../../support/machine/scratch.ts';
import { testLanes } from '../../../../support/services/lanes.ts';

test('look-ups in a directory that begin in one turn share a job, sixteen at most; other directories have theirs', async () => {
  const lanes: Lane[] = [];
  const batches = new JobBatches(async (lane, job) => {
    lanes.push(lane);
    return await job();
  });
  const [one, other] = [laneOf('/one/a'), laneOf('/other/a')];
  const results = await Promise.all([
    ...Array.from({ length: 33 }, (_, index) => batches.add(one, async () => index)),
    batches.add(other, async () => 'other'),
  ]);
  expect(results).toEqual([...Array(33).keys(), 'other']);
  expect(lanes).toEqual([one, one, one, other]);
  expect(await batches.add(one, async () => 'later')).toBe('later');
});

test('a batch that waits for a place takes what comes meanwhile, until it begins', async () => {
  const place = Promise.withResolvers<void>();
  let jobs = 0;
  const batches = new JobBatches(async (_, job) => {
    jobs++;
    if (jobs === 1) await place.promise;
    return await job();
  });
  const lane = laneOf('/one/a');
  const calls = [batches.add(lane, async () => 1)];
  await turn();
  calls.push(batches.add(lane, async () => 2));
  await turn();
  expect(jobs).toBe(1);
  place.resolve();
  expect(await Promise.all(calls)).toEqual([1, 2]);
  expect(await batches.add(lane, async () => 3)).toBe(3);
  expect(jobs).toBe(2);
});

test('each has its own result; an error of the lane is that of all', async () => {
  const batches = new JobBatches(async (_, job) => await job());
  const lane = laneOf('/one/a');
  const fail = () => {
    throw new Error('at once');
  };
  const settled = await Promise.allSettled([batches.add(lane, async () => 'done'), batches.add(lane, fail)]);
  expect(settled.map(({ status }) => status)).toEqual(['fulfilled', 'rejected']);

  const refusing = new JobBatches(() => Promise.reject(new Error('refused')));
  const calls = [refusing.add(lane, async () => 1), refusing.add(lane, async () => 2)];
  await Promise.all(calls.map((call) => expect(call).rejects.toThrow('refused')));
});

test('what was recalled runs again, and does not end with its batch', async () => {
  const first = Promise.withResolvers<void>();
  let runs = 0;
  const batches = new JobBatches(async (_, job) => {
    runs += 1;
    const isFirst = runs === 1;
    const result = await job();
    if (!isFirst) return result;
    first.resolve();
    throw new Error('the batch has ended otherwise');
  });
  const recalled = Object.assign(new Error('recalled'), { code: 'ECANCELED', syscall: 'stat' });
  let calls = 0;
  const call = batches.add(laneOf('/one/a'), async () => {
    calls += 1;
    if (calls === 1) throw recalled;
    await first.promise;
    return 'again';
  });
  expect(await call).toBe('again');
  expect([runs, calls]).toEqual([2, 2]);
});

test('the kernel answers a batch as it answers each alone', async () => {
  const directory = scratch();
  mkdirSync(join(directory, 'below'));
  for (let index = 0; index < 40; index++) writeFileSync(join(directory, `file-${index}`), 'x'.repeat(index));
  const stat = (name: string) => readRawEntry(Buffer.from(join(directory, name)), 'user.', testLanes);
  const entries = Array.from({ length: 40 }, (_, index) => stat(`file-${index}`));
  const missing = stat('missing');
  const tooLong = stat('x'.repeat(5000));
  const settled = await Promise.allSettled([missing, tooLong]);
  expect(settled).toMatchObject([{ reason: { code: 'ENOENT' } }, { reason: { code: 'ENAMETOOLONG' } }]);
  expect((await Promise.all(entries)).map(({ size }) => Number(size))).toEqual([...Array(40).keys()]);
});

test('functions of the addon that run together are done in order', async () => {
  const path = join(scratch(), 'file');
  const stored: Promise<boolean | string>[] = [];
  native.runTogether(() => {
    for (const content of ['first', 'second'])
      stored.push(native.storeFile(path, '', Buffer.from(content), 'user.', 0, 0));
  });
  native.runTogether(() => {});
  // The second one finds the first one's file.
  expect(await Promise.all(stored)).toEqual([true, expect.stringMatching(/^\d+:\d+$/)]);
});
