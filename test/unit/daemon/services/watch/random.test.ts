import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { describe, expect, test } from 'vitest';
import type { Watch } from '../../../../../src/daemon/services/watch/watcher.ts';
import { changeAtRandom } from '../../../../support/services/random-tree.ts';
import { pathsOf, Replay } from '../../../../support/services/replay.ts';
import { WatchFixture } from '../../../../support/services/watch.ts';

const OPERATIONS = 3000;
const SEEDS = Number(process.env.WATCH_SEEDS ?? 20);
const FIRST = Number(process.env.WATCH_FIRST_SEED ?? 1);
const seeds = Array.from({ length: SEEDS }, (_, index) => FIRST + index);
const program = join(import.meta.dirname, '../../../../support/services/random-tree.ts');

async function start(f: WatchFixture, seed: number): Promise<[Watch, Replay]> {
  mkdirSync(f.dir);
  mkdirSync(f.outside('outside'));
  changeAtRandom(f.dir, f.outside('outside'), -seed, 200);
  const watch = await f.watch();
  return [watch, new Replay(f.dir)];
}

async function expectSame(f: WatchFixture, watch: Watch, replay: Replay): Promise<void> {
  const paths = pathsOf(f.dir);
  // Reading new directories takes some turns of the event loop.
  for (let round = 0; round < 100 && !isDeepStrictEqual(replay.paths(), paths); round++) {
    replay.apply(await f.events(watch));
  }
  replay.apply(await f.events(watch));
  expect(replay.paths()).toEqual(paths);
  expect(replay.rescans).toBe(0);
}

describe.each(seeds)('the replay is right after 3,000 random operations, seed %i', (seed) => {
  test('all before the first event is read', async () => {
    await using f = new WatchFixture(undefined, '/dev/shm');
    const [watch, replay] = await start(f, seed);
    changeAtRandom(f.dir, f.outside('outside'), seed, OPERATIONS);
    await expectSame(f, watch, replay);
    expect(replay.faults).toEqual([]);
  });

  test('by another process, while events are read', async () => {
    await using f = new WatchFixture(undefined, '/dev/shm');
    const [watch, replay] = await start(f, seed);
    const child = spawn(process.execPath, [program, f.dir, f.outside('outside'), `${seed}`, `${OPERATIONS}`]);
    const ended = once(child, 'exit');
    let running = true;
    ended.then(() => {
      running = false;
    });
    while (running) {
      replay.apply(watch.take() ?? []);
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(await ended).toEqual([0, null]);
    await expectSame(f, watch, replay);
    expect(replay.faults).toEqual([]);
  });
});
