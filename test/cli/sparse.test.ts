import { closeSync, ftruncateSync, mkdirSync, openSync, readFileSync, statSync, writeSync } from 'node:fs';
import { join } from 'node:path';
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
