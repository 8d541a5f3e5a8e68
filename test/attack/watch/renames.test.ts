import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import process from 'node:process';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { EventType } from '../../../src/gen/filesystem/filesystem_pb.js';
import { longestBeside } from '../../support/clients/beside.ts';
import { connectTo } from '../../support/clients/clients.ts';
import { needs } from '../../support/machine/needs.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { until } from '../../support/until.ts';

/*
 * A process renames a subtree of 40,000 directories in a loop, under a recursive watch: the event loop goes on, what is
 * reported afterwards is right, and nothing stays watched.
 */

const BRANCHES = 200;
const LEAVES = 199;
/** For how long a process renames, in seconds. */
const ATTACK_S = 2;
/** The longest that other calls may wait for the event loop, in milliseconds of its CPU time: without slices it was 2 to 40 s. */
const LONGEST_MS = 500;

let daemon: TestDaemon;
let base = '';
const at = (...names: string[]) => join(base, ...names);
const rpc = () => connectTo(daemon.url, 'binary').filesystem;

beforeAll(() => {
  base = mkdtempSync('/dev/shm/envd-renames-');
  for (const name of ['root/top', 'root/deep/er', 'outside']) mkdirSync(at(name), { recursive: true });
  for (let branch = 0; branch < BRANCHES; branch++) {
    mkdirSync(at(`root/top/${branch}`));
    for (let leaf = 0; leaf < LEAVES; leaf++) mkdirSync(at(`root/top/${branch}/${leaf}`));
  }
});
afterAll(() => {
  rmSync(base, { recursive: true, force: true });
});
beforeEach(async () => {
  needs('python3');
  daemon = await startDaemon();
});
afterEach(async () => {
  await daemon?.[Symbol.asyncDispose]();
});

/** Another process renames along `steps` in a loop, for ATTACK_S; it ends where it has begun. */
async function attack(steps: readonly string[]): Promise<void> {
  const script = `
import os, sys, time
steps = sys.argv[1:]
end = time.monotonic() + ${ATTACK_S}
while time.monotonic() < end and os.getppid() == ${process.pid}:
    for source, target in zip(steps, steps[1:] + steps[:1]):
        os.rename(source, target)
`;
  const child = spawn('python3', ['-c', script, ...steps], { stdio: ['ignore', 'inherit', 'inherit'] });
  expect(await once(child, 'exit')).toEqual([0, null]);
}

/** A new file in a leaf is reported with its path. */
async function expectReports(watcherId: string): Promise<void> {
  let count = 0;
  await until('a new file is reported', async () => {
    writeFileSync(at(`root/top/77/77/file-${count++}`), '');
    const { events } = await rpc().getWatcherEvents({ watcherId });
    return events.some(({ name, type }) => type === EventType.CREATE && name.startsWith('top/77/77/file-'));
  });
}

function kernelWatches(): number {
  return readdirSync(`/proc/${daemon.pid}/fdinfo`).reduce((sum, name) => {
    try {
      const text = readFileSync(`/proc/${daemon.pid}/fdinfo/${name}`, 'utf8');
      return sum + (text.match(/^inotify wd/gm)?.length ?? 0);
    } catch {
      return sum;
    }
  }, 0);
}

test.each<[string, readonly string[]]>([
  ['within the tree', ['root/top', 'root/other']],
  ['to other directories of it', ['root/top', 'root/deep/er/top', 'root/deep/top']],
  ['out of the tree and in', ['root/top', 'outside/top']],
])('%s', async (_name, steps) => {
  const { watcherId } = await rpc().createWatcher({ path: at('root'), recursive: true });
  const longestMs = await longestBeside(
    daemon,
    attack(steps.map((step) => at(step))).then(() => expectReports(watcherId)),
  );
  await rpc().removeWatcher({ watcherId });
  // The one for the next mark.
  await until('nothing is watched', kernelWatches, (count) => count === 1);
  expect(longestMs).toBeLessThan(LONGEST_MS);
});
