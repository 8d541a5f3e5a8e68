import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { Lane } from '../../../../../../src/daemon/linux/lanes/lane.ts';
import { Lanes, type RunOptions } from '../../../../../../src/daemon/linux/lanes/lanes.ts';
import { syncDirectories } from '../../../../../../src/daemon/services/files/uploads/durability.ts';
import { scratch } from '../../../../../support/machine/scratch.ts';

/** Counts what takes long, here fsync(2), a turn of the event loop after it has returned. */
class CountingLanes extends Lanes {
  synced = 0;

  override async run<T>(lane: Lane, job: () => T | Promise<T>, options: RunOptions<T> = {}): Promise<T> {
    const value = await super.run(lane, job, options);
    if (!options.long) return value;
    await new Promise((resolve) => setImmediate(resolve));
    this.synced += 1;
    return value;
  }
}

const newLanes = () => new CountingLanes({ limitMs: 10_000, threads: 4 });

test('every directory up to the root has been synced when it resolves, shared ones once', async () => {
  const directory = scratch();
  const paths = ['a/b', 'a/c'].map((name) => join(directory, name));
  for (const path of paths) mkdirSync(path, { recursive: true });
  const lanes = newLanes();
  await syncDirectories(paths, lanes);
  const above = directory.split('/').length;
  expect(lanes.synced).toBe(above + 3);
});

test('one that cannot be synced is an error', async () => {
  const lanes = newLanes();
  const path = join(scratch(), 'none');
  await expect(syncDirectories([path], lanes)).rejects.toThrow(path);
  expect(lanes.synced).toBe(0);
});
