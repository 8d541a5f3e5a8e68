import { linkSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { scratch } from '../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../support/programs/daemon.ts';
import { envctl } from '../support/programs/envctl.ts';

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(() => daemon?.[Symbol.asyncDispose]());

const MIB = 1024 * 1024;

/** Makes a tree of which three names are one file, two another, and two are files of the same size and time. */
function makeTree(root: string, bytes: number): void {
  mkdirSync(join(root, 'sub'), { recursive: true });
  // A file without holes, which would have it go another way.
  writeFileSync(join(root, 'a'), Buffer.alloc(bytes, 'a line\n'));
  for (const name of ['sub/b', 'c']) linkSync(join(root, 'a'), join(root, name));
  writeFileSync(join(root, 'd'), '');
  linkSync(join(root, 'd'), join(root, 'sub/e'));
  for (const name of ['alone', 'other']) writeFileSync(join(root, name), name.padEnd(10));
}

function expectTree(root: string, from: string): void {
  const names = ['a', 'sub/b', 'c', 'd', 'sub/e', 'alone', 'other'];
  for (const name of names)
    expect(readFileSync(join(root, name)).equals(readFileSync(join(from, name))), name).toBe(true);
  const inodes = names.map((name) => statSync(join(root, name)).ino);
  expect(inodes.map((inode) => inodes.indexOf(inode))).toEqual([0, 0, 0, 3, 3, 5, 6]);
}

describe.each([
  ['small files', 100],
  ['files that may go on', 9 * MIB],
  ['files that go in parts', 65 * MIB],
])('%s keep their names', (name, bytes) => {
  test.each(['cp', 'sync'])('by %s, both ways', async (command) => {
    const here = join(scratch(), 'here');
    const there = join(daemon.scratch, `${command} ${name}`);
    const back = join(scratch(), 'back');
    makeTree(here, bytes);
    const up = await envctl(daemon.url, [command, '--json', here, `:${there}`]);
    expect(JSON.parse(up.stdout)).toMatchObject({ files: 7, bytes: 3 * bytes + 20 });
    expectTree(there, here);
    const down = await envctl(daemon.url, [command, '--json', `:${there}`, back]);
    expect(JSON.parse(down.stdout)).toMatchObject({ files: 7, bytes: 3 * bytes + 20 });
    expectTree(back, here);
  });
});

test('a sync after a change keeps them, and one that is replaced is a file of its own', async () => {
  const [here, there] = [join(scratch(), 'here'), join(daemon.scratch, 'changed')];
  makeTree(here, 100);
  const sync = async () =>
    JSON.parse((await envctl(daemon.url, ['sync', '--json', here, `:${there}`])).stdout);
  await sync();
  writeFileSync(join(here, 'a'), 'new content');
  expect(await sync()).toMatchObject({ files: 3, same: 5 });
  expectTree(there, here);
  rmSync(join(here, 'c'));
  linkSync(join(here, 'd'), join(here, 'c'));
  expect(await sync()).toMatchObject({ files: 3, same: 5 });
  const inodes = ['a', 'sub/b', 'c', 'd', 'sub/e'].map((name) => statSync(join(there, name)).ino);
  expect(inodes.map((inode) => inodes.indexOf(inode))).toEqual([0, 0, 2, 2, 2]);
});
