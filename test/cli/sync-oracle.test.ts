import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  linkSync,
  lstatSync,
  lutimesSync,
  mkdirSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { scratch } from '../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../support/programs/daemon.ts';
import { envctl } from '../support/programs/envctl.ts';
import { describeTree } from '../support/services/described-tree.ts';
import { generator } from '../support/services/random-tree.ts';

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(() => daemon?.[Symbol.asyncDispose]());

/** Each round synchronizes so many trees at once, which are directories of one, and all of them have changed since the last. */
const TREES = 20;
const ROUNDS = 10;
const { ENVD_TEST_SEED: SEED = '7' } = process.env;

const NAMES = ['a', 'b', 'c', 'd'];
const FILE_MODES = [0o644, 0o600, 0o755, 0o444];
const DIRECTORY_MODES = [0o755, 0o700, 0o775];
const TARGETS = ['a', 'b', './a', '../a', '/nowhere', 'directory/that/is/none'];
/** Every change gets a time of its own, because the same size and time count as the same. */
let clock = 1_600_000_000;

/** Makes, changes or replaces some entries of a tree. */
function change(root: string, random: () => number, kinds: readonly string[], count: number): void {
  const pick = <T>(from: readonly T[]): T => from[Math.floor(random() * from.length)] as T;
  const kindOf = (path: string) => lstatSync(path, { throwIfNoEntry: false });
  const make = {
    file: (path: string) => writeFileSync(path, String(clock).repeat(pick([0, 1, 2])), { mode: 0o600 }),
    directory: (path: string) => mkdirSync(path),
    link: (path: string) => symlinkSync(pick(TARGETS), path),
    name: (path: string) => {
      const file = join(root, pick(NAMES));
      if (file !== path && kindOf(file)?.isFile()) linkSync(file, path);
    },
  };
  for (let step = 0; step < count; step++) {
    let path = join(root, pick(NAMES));
    while (kindOf(path)?.isDirectory() && random() < 0.7) path = join(path, pick(NAMES));
    const isModeAlone = kindOf(path) && !kindOf(path)?.isSymbolicLink() && random() < 0.3;
    if (!isModeAlone) {
      rmSync(path, { recursive: true, force: true });
      make[pick(kinds) as keyof typeof make]?.(path);
      if (kindOf(path)) lutimesSync(path, ++clock, clock);
    }
    const stats = kindOf(path);
    if (stats?.isFile()) chmodSync(path, pick(FILE_MODES));
    if (stats?.isDirectory()) chmodSync(path, pick(DIRECTORY_MODES));
  }
}

const KINDS = ['file', 'directory', 'none', 'name'];
const KINDS_WITH_LINKS = [...KINDS, 'link'];

// A sandbox does not tell the targets of its links, which are left out on the way to this machine.
test.each(['up', 'down'])('200 random trees become the same as by rsync -a --delete, %s', async (way) => {
  const random = generator(Number(SEED));
  const [here, there, expected] = ['here', 'there', 'expected'].map((name) => join(scratch(), name)) as [
    string,
    string,
    string,
  ];
  const trees = Array.from({ length: TREES }, (_, index) => `tree-${index}`);
  for (const root of [here, there])
    for (const tree of trees) mkdirSync(join(root, tree), { recursive: true });
  for (let round = 0; round < ROUNDS; round++) {
    for (const tree of trees) {
      change(join(here, tree), random, way === 'up' ? KINDS_WITH_LINKS : KINDS, 12);
      change(join(there, tree), random, KINDS_WITH_LINKS, 6);
    }
    rmSync(expected, { recursive: true, force: true });
    execFileSync('cp', ['-a', there, expected]);
    execFileSync('rsync', ['-a', '--delete', `${here}/`, `${expected}/`]);
    const places = way === 'up' ? [here, `:${there}`] : [`:${here}`, there];
    const result = await envctl(daemon.url, ['sync', '-q', '--delete', ...places]);
    const which = `round ${round} of ENVD_TEST_SEED=${SEED}`;
    expect(result, which).toMatchObject({ code: 0, stderr: '' });
    expect(readdirSync(there).length).toBe(TREES);
    for (const tree of trees)
      expect(describeTree(join(there, tree)), `${tree} in ${which}`).toEqual(
        describeTree(join(expected, tree)),
      );
  }
});
