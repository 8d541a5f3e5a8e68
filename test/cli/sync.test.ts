import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';

import { scratch } from '../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../support/programs/daemon.ts';
import { envctl, startEnvctl } from '../support/programs/envctl.ts';
import { describeTree } from '../support/services/described-tree.ts';
import { until } from '../support/until.ts';

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(() => daemon?.[Symbol.asyncDispose]());

const sync = (...args: string[]) => envctl(daemon.url, ['sync', ...args]);
const syncJson = async (...args: string[]) => {
  const { stdout, stderr } = await sync('--json', ...args);
  return stdout === '' ? { stderr } : JSON.parse(stdout);
};

function twoTrees(): { here: string; there: string } {
  const [here, there] = [join(scratch(), 'here'), join(scratch(), 'there')];
  mkdirSync(here);
  mkdirSync(there);
  return { here, there };
}

test('a mode alone is synchronized, both ways', async () => {
  const { here, there } = twoTrees();
  mkdirSync(join(here, 'directory'));
  writeFileSync(join(here, 'directory/file'), 'x');
  await sync(here, `:${there}`);
  chmodSync(join(here, 'directory/file'), 0o640);
  chmodSync(join(here, 'directory'), 0o700);
  expect(await syncJson(here, `:${there}`)).toMatchObject({ files: 0, modes: 2, same: 0 });
  expect(describeTree(there)).toEqual(describeTree(here));
  chmodSync(join(there, 'directory/file'), 0o666);
  chmodSync(join(there, 'directory'), 0o777);
  expect(await syncJson(`:${there}`, here)).toMatchObject({ files: 0, modes: 2, same: 0 });
  expect(describeTree(here)).toEqual(describeTree(there));
});

test('a link that is the same stays', async () => {
  const { here, there } = twoTrees();
  symlinkSync('nowhere', join(here, 'dangling'));
  symlinkSync('.', join(here, 'link'));
  expect(await syncJson(here, `:${there}`)).toMatchObject({ links: 2 });
  const before = ['dangling', 'link'].map((name) => lstatSync(join(there, name)).ino);
  expect(await syncJson(here, `:${there}`)).toMatchObject({ links: 0, same: 2 });
  expect(['dangling', 'link'].map((name) => lstatSync(join(there, name)).ino)).toEqual(before);
  rmSync(join(here, 'link'));
  symlinkSync('/', join(here, 'link'));
  expect(await syncJson(here, `:${there}`)).toMatchObject({ links: 1, same: 1 });
  expect(describeTree(there)).toEqual(describeTree(here));
});

test('a directory with content gives way to a file with --delete alone, and the rest goes on', async () => {
  const { here, there } = twoTrees();
  mkdirSync(join(there, 'a'));
  writeFileSync(join(there, 'a/precious'), 'x');
  writeFileSync(join(here, 'a'), 'a file');
  writeFileSync(join(here, 'b'), 'b');
  const result = await sync(here, `:${there}`);
  expect(result).toMatchObject({ code: 125 });
  expect(result.stderr).toContain('left a as it was: a directory is there, which only --delete replaces');
  expect(readdirSync(there, { recursive: true }).toSorted()).toEqual(['a', 'a/precious', 'b']);
  expect(await sync('--delete', here, `:${there}`)).toMatchObject({ code: 0 });
  expect(describeTree(there)).toEqual(describeTree(here));
});

test('an entry that cannot be transferred is told and left, and the rest goes on', async () => {
  const { here, there } = twoTrees();
  for (const name of ['a', 'b', 'c', 'd', 'e']) writeFileSync(join(here, name), name);
  const mount = join(there, 'c');
  mkdirSync(mount);
  execFileSync('mount', ['-t', 'tmpfs', 'none', mount]);
  try {
    const result = await sync('--delete', here, `:${there}`);
    expect(result).toMatchObject({ code: 125 });
    expect(result.stderr).toContain('left c as it was: ');
    expect(readdirSync(there).toSorted()).toEqual(['a', 'b', 'c', 'd', 'e']);
    const down = await sync('--delete', `:${here}`, there);
    expect(down).toMatchObject({ code: 125 });
    expect(down.stderr).toContain('left c as it was: ');
  } finally {
    execFileSync('umount', [mount]);
  }
});

test('what is left out is neither transferred nor removed', async () => {
  const { here, there } = twoTrees();
  const make = (root: string, path: string, content = '') => {
    mkdirSync(join(root, path, '..'), { recursive: true });
    writeFileSync(join(root, path), content);
  };
  make(here, '.envctlignore', '*.log\n');
  make(here, '.gitignore', 'build/\n*.tmp\n');
  make(here, 'sub/.gitignore', '!keep.tmp\n');
  make(here, 'patterns', '/secret\n');
  for (const path of [
    'a.log',
    'build/x',
    'b.tmp',
    'sub/keep.tmp',
    'secret',
    'sub/secret',
    '.git/HEAD',
    'c.o',
  ])
    make(here, path);
  // A directory that the source does not have stays with what is left out, and loses the rest.
  for (const path of ['gone/build/kept', 'gone/old', 'there.log', '.git/config', 'secret', 'extra'])
    make(there, path, 'theirs');
  const options = ['--exclude-from', join(here, 'patterns'), '--exclude', '*.o', '--gitignore', '--delete'];
  expect(await sync(...options, here, `:${there}`)).toMatchObject({ code: 0 });
  const files = Object.entries(describeTree(there)).filter(([, what]) => !what.endsWith('directory'));
  expect(files.map(([path]) => path)).toEqual([
    ...['/.envctlignore', '/.git/config', '/.gitignore', '/gone/build/kept', '/patterns', '/secret'],
    ...['/sub/.gitignore', '/sub/keep.tmp', '/sub/secret', '/there.log'],
  ]);
  // The other way, the patterns are those of the sandbox.
  make(here, 'extra', 'ours');
  expect(await sync(...options, `:${there}`, here)).toMatchObject({ code: 0 });
  expect(readdirSync(here)).toEqual(expect.arrayContaining(['a.log', 'build', 'b.tmp', '.git', 'c.o']));
  expect(readdirSync(here)).not.toContain('extra');
  // A directory with something that is left out does not give way to a file.
  rmSync(join(here, 'gone'), { recursive: true, force: true });
  writeFileSync(join(here, 'gone'), 'a file');
  const result = await sync(...options, here, `:${there}`);
  expect(result).toMatchObject({ code: 125 });
  expect(result.stderr).toContain(
    'left gone as it was: a directory is there with something that is left out',
  );
  expect(readFileSync(join(there, 'gone/build/kept'), 'utf8')).toBe('theirs');
});

test('sync --watch says that it watches, and what it moved', async () => {
  const { here, there } = twoTrees();
  writeFileSync(join(here, 'first'), '');
  const running = startEnvctl(daemon.url, ['sync', '--watch', '--delete', here, `:${there}`]);
  const says = (text: string) => until(`it says ${text}`, () => running.stderr().includes(text));
  await says('[watching]');
  await says('transfer  first');
  writeFileSync(join(here, 'second'), '');
  await says('transfer  second');
  rmSync(join(here, 'first'));
  await says('remove    first');
  await until('the other one is alone', () => !readdirSync(there).includes('first'));
  expect(readdirSync(there)).toEqual(['second']);
  running.child.kill('SIGINT');
  await running.result;
});
