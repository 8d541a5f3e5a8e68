import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { lstatSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { expect, test } from 'vitest';
import type { Watch } from '../../../../../src/daemon/services/watch/watcher.ts';
import { needs } from '../../../../support/machine/needs.ts';
import { pathsOf, Replay } from '../../../../support/services/replay.ts';
import { WatchFixture } from '../../../../support/services/watch.ts';

/** 2,500 files in 125 directories: on a busy machine, all events of a tool fit into the kernel's queue of 16,384. */
function makeTree(root: string, text: string): void {
  for (let directory = 0; directory < 125; directory++) {
    const path = join(root, `package-${directory % 25}`, 'lib', `part-${Math.floor(directory / 25)}`);
    mkdirSync(path, { recursive: true });
    for (let file = 0; file < 20; file++) writeFileSync(join(path, `${file}.js`), `${text} ${file}`);
  }
}

/** Runs a program and replays the events, until the replayed tree equals the real one. */
async function follow(f: WatchFixture, watch: Watch, file: string, ...args: string[]): Promise<Replay> {
  const replay = new Replay(f.dir);
  const child = spawn(file, args, { cwd: f.dir, stdio: ['ignore', 'ignore', 'inherit'] });
  const ended = once(child, 'exit');
  let running = true;
  ended.then(() => {
    running = false;
  });
  while (running) {
    const events = watch.take() ?? [];
    // With entries, which are looked up and may be gone.
    for (const { path } of events) lstatSync(path, { throwIfNoEntry: false });
    replay.apply(events);
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  expect(await ended).toEqual([0, null]);
  const paths = pathsOf(f.dir);
  for (let round = 0; round < 100 && !isDeepStrictEqual(replay.paths(), paths); round++) {
    replay.apply(await f.events(watch));
  }
  expect(replay.paths()).toEqual(paths);
  expect(replay.faults).toEqual([]);
  expect(replay.rescans).toBe(0);
  return replay;
}

test('the replay is right when tar unpacks 2,500 files and they are removed', async () => {
  await using f = new WatchFixture();
  mkdirSync(f.dir);
  makeTree(f.outside('tree'), 'x');
  execFileSync('tar', ['-cf', f.outside('tree.tar'), '-C', f.outside('tree'), '.']);
  const watch = await f.watch();
  const replay = await follow(f, watch, 'tar', '-xf', f.outside('tree.tar'));
  expect(replay.paths()).toHaveLength(2500 + 125 + 25 + 25);
  await follow(f, watch, 'sh', '-c', 'rm -rf *');
});

test('the replay is right when git checks out one commit and another', async () => {
  needs('git');
  await using f = new WatchFixture();
  mkdirSync(f.dir);
  const git = (...args: string[]) =>
    execFileSync('git', ['-c', 'user.name=t', '-c', 'user.email=t@t', '-c', 'gc.auto=0', ...args], {
      cwd: f.dir,
      stdio: 'ignore',
    });
  git('init', '-b', 'one');
  makeTree(f.at('src'), 'one');
  git('add', '.');
  git('commit', '-m', 'one');
  git('checkout', '-b', 'two');
  rmSync(f.at('src/package-0'), { recursive: true });
  rmSync(f.at('src/package-1/lib'), { recursive: true });
  writeFileSync(f.at('src/package-1/lib'), 'now a file');
  makeTree(f.at('other'), 'two');
  git('add', '-A');
  git('commit', '-m', 'two');
  const watch = await f.watch();
  await follow(f, watch, 'git', 'checkout', '-q', 'one');
  await follow(f, watch, 'git', 'checkout', '-q', 'two');
});
