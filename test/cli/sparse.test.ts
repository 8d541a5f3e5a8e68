import {
  closeSync,
  ftruncateSync,
  lstatSync,
  mkdirSync,
  openSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { scratch } from '../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../support/programs/daemon.ts';
import { envctl } from '../support/programs/envctl.ts';

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(() => daemon?.[Symbol.asyncDispose]());

const MIB = 1024 * 1024;

/** Makes a file with some bytes at its beginning and in its middle, and holes elsewhere. */
function makeSparse(path: string, bytes: number): void {
  const file = openSync(path, 'w');
  writeSync(file, 'begun', 0);
  writeSync(file, 'in the middle', Math.floor(bytes / 2) + 12_345);
  ftruncateSync(file, bytes);
  closeSync(file);
}

test.each([
  ['one file', 32 * MIB],
  ['a file of an archive', 6 * MIB],
])('a copy from a sandbox does not fill the holes of %s', async (_name, bytes) => {
  const source = join(daemon.scratch, `tree-${bytes}`);
  mkdirSync(source);
  makeSparse(join(source, 'sparse'), bytes);
  const copy = join(scratch(), 'copy');
  expect(await envctl(daemon.url, ['cp', '-q', `:${source}`, copy])).toMatchObject({ code: 0 });
  const path = join(copy, 'sparse');
  expect(readFileSync(path).equals(readFileSync(join(source, 'sparse')))).toBe(true);
  expect(statSync(path).size).toBe(bytes);
  expect(statSync(path).blocks * 512).toBeLessThan(MIB);
});

test.each([
  ['one file', 96 * MIB],
  ['a file of an archive', 6 * MIB],
  ['a large file of a directory', 96 * MIB],
])('a copy to a sandbox does not fill the holes of %s', async (name, bytes) => {
  const source = join(scratch(), 'tree');
  mkdirSync(source);
  makeSparse(join(source, 'sparse'), bytes);
  const isAlone = name === 'one file';
  const path = join(daemon.scratch, `up-${name.replaceAll(' ', '-')}`, 'sparse');
  const paths = isAlone ? [join(source, 'sparse'), `:${path}`] : [source, `:${dirname(path)}`];
  const stored = await envctl(daemon.url, ['cp', '--json', ...paths]);
  expect(JSON.parse(stored.stdout)).toMatchObject({ files: 1, bytes });
  expect(readFileSync(path).equals(readFileSync(join(source, 'sparse')))).toBe(true);
  expect(statSync(path).blocks * 512).toBeLessThan(MIB);
  // A second copy replaces the file, and so leaves holes, too.
  expect(await envctl(daemon.url, ['cp', '-q', join(source, 'sparse'), `:${path}`])).toMatchObject({
    code: 0,
  });
  expect(statSync(path).blocks * 512).toBeLessThan(MIB);
});

test('a sparse file goes through a link of the sandbox, as any other does', async () => {
  const source = join(scratch(), 'sparse');
  makeSparse(source, MIB);
  const path = join(daemon.scratch, 'behind-the-link');
  symlinkSync(path, join(daemon.scratch, 'link'));
  expect(await envctl(daemon.url, ['cp', '-q', source, `:${daemon.scratch}/link`])).toMatchObject({
    code: 0,
  });
  expect(lstatSync(join(daemon.scratch, 'link')).isSymbolicLink()).toBe(true);
  expect(readFileSync(path).equals(readFileSync(source))).toBe(true);
});
