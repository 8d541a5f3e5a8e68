import { mkdirSync, rmdirSync, writeFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { PolledWatches } from '../../../../../src/daemon/services/watch/polled.ts';
import { Watcher } from '../../../../../src/daemon/services/watch/watcher.ts';
import { scratch } from '../../../../support/machine/scratch.ts';
import { testLanes } from '../../../../support/services/lanes.ts';

const options = { recursive: false, allowNetworkMounts: false };

test('open watches of both kinds are counted', async () => {
  const directory = scratch();
  using watcher = new Watcher(testLanes);
  using polled = new PolledWatches(watcher);
  const first = await watcher.watch(directory, options);
  const second = await polled.create(directory, { ...options, includeEntry: false });
  expect(watcher.open).toBe(2);
  await expect(watcher.watch(`${directory}/nope`, options)).rejects.toThrow();
  polled.remove(second);
  first[Symbol.dispose]();
  first[Symbol.dispose]();
  expect(watcher.open).toBe(0);
});

test('rescans are counted', async () => {
  // A file system in memory, as many events are needed.
  const [directory, other] = [scratch('/dev/shm'), scratch()];
  using watcher = new Watcher(testLanes);
  using watch = await watcher.watch(directory, options);
  using after = await watcher.watch(other, options);
  writeFileSync(`${directory}/file`, '');
  expect(await watch.next()).toMatchObject([{ type: 'create', name: 'file' }]);
  // More than the backlog of one reader.
  for (let i = 0; i < 40_000; i++) {
    mkdirSync(`${directory}/sub`);
    rmdirSync(`${directory}/sub`);
  }
  // Events are ordered: this one follows all of those.
  writeFileSync(`${other}/file`, '');
  const events = [...((await after.next()) ?? []), ...(watch.take() ?? [])];
  const rescans = events.filter(({ type }) => type === 'rescan').length;
  expect(rescans).toBeGreaterThan(0);
  expect(watcher.rescans).toBe(rescans);
});

test('a watch that has ended is counted until it is disposed of', async () => {
  const directory = `${scratch()}/gone`;
  mkdirSync(directory);
  using watcher = new Watcher(testLanes);
  const watch = await watcher.watch(directory, options);
  rmdirSync(directory);
  expect(await watch.next()).toMatchObject([{ type: 'remove', name: '.' }]);
  expect(await watch.next()).toBeNull();
  expect(watcher.open).toBe(1);
  watch[Symbol.dispose]();
  expect(watcher.open).toBe(0);
});
