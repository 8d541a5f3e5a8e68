import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { withoutOpenat2 } from '../../support/attackers/without-openat2.ts';
import { connectTo } from '../../support/clients/clients.ts';
import { story } from '../../support/file-model/arbitraries.ts';
import { setStage } from '../../support/file-model/stage.ts';
import { type Played, play } from '../../support/file-model/story.ts';
import { needs } from '../../support/machine/needs.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { daemonCommand } from '../../support/programs/programs.ts';

/*
 * Random trees with links of several owners, random paths and operations: a model decides who may reach what
 * (path_resolution(7), and that a link is followed with its owner's rights). The daemon agrees, and nothing else changes.
 *
 * ENVD_MODEL_RUNS: trees, each with up to 12 operations, from a random seed; ENVD_MODEL_SEED: repeats such a run; ENVD_MODEL_FIRST: the first
 * failure is shown as it is, not made smaller.
 */
const { ENVD_MODEL_RUNS, ENVD_MODEL_SEED, ENVD_MODEL_FIRST } = process.env;
const RUNS = Number(ENVD_MODEL_RUNS ?? 100);
const SEED = Number(ENVD_MODEL_SEED ?? (ENVD_MODEL_RUNS ? Date.now() % 1e9 : 1));

async function compare(daemon: TestDaemon): Promise<void> {
  needs('mounts');
  chmodSync(daemon.scratch, 0o755);
  await using stage = await setStage(daemon);
  const played: Played = new Map();
  await fc.assert(
    fc.asyncProperty(story, (each) => play(stage, each, played)),
    { numRuns: RUNS, seed: SEED, endOnFailure: ENVD_MODEL_FIRST !== undefined },
  );
  const sum = [...played.values()].reduce((all, each) => all + each);
  const list = [...played].map(([key, count]) => `${count} × ${key}`).sort();
  process.stdout.write(`seed ${SEED}, ${RUNS} trees, ${sum} operations: ${list.join(', ')}\n`);
  expect(sum).toBeGreaterThan(RUNS);
}

const TIMEOUT = { timeout: 7_200_000 };

test('the daemon reaches what the model reaches', TIMEOUT, async () => {
  await using daemon = await startDaemon();
  await compare(daemon);
});

/** A daemon for which openat2(2) does not exist. */
function startWithout(): Promise<TestDaemon> {
  return startDaemon({ command: [withoutOpenat2(), ...daemonCommand()] });
}

test('without openat2(2) too', TIMEOUT, async () => {
  await using daemon = await startWithout();
  await compare(daemon);
});

test('without openat2(2) a deep listing is complete', async () => {
  await using daemon = await startWithout();
  const deep = join(daemon.scratch, 'a/b/c');
  mkdirSync(deep, { recursive: true });
  writeFileSync(join(deep, 'd'), '');
  const { entries } = await connectTo(daemon.url).filesystem.listDir({ path: daemon.scratch, depth: 9 });
  expect(entries.map(({ name }) => name)).toEqual(expect.arrayContaining(['a', 'b', 'c', 'd']));
});
