import { mkdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { PathHandle } from '../../../../../../src/daemon/linux/files/place.ts';
import { replaceByStaged } from '../../../../../../src/daemon/services/files/uploads/replace-file.ts';
import { StagedFile } from '../../../../../../src/daemon/services/files/uploads/staged-file.ts';
import { scratch } from '../../../../../support/machine/scratch.ts';
import { ROOT } from '../../../../../support/machine/users.ts';
import { testLanes } from '../../../../../support/services/lanes.ts';

/** Replaces `directory/file`, with `meanwhile` between the staging and that; returns what is there then. */
async function replaced(directory: string, meanwhile: (path: string) => void): Promise<string> {
  const path = join(directory, 'file');
  using place = await PathHandle.open(path, true, testLanes);
  await using staged = (await StagedFile.open(place)) ?? (await StagedFile.openNamed(place, ROOT));
  await staged.write([Buffer.from('new')], new AbortController().signal);
  meanwhile(path);
  await replaceByStaged(staged, place, null, ROOT);
  return readFileSync(path, 'utf8');
}

test('a file that was created meanwhile is replaced', async () => {
  expect(await replaced(scratch(), (path) => writeFileSync(path, 'of another process'))).toBe('new');
});

test('a directory that was removed meanwhile is looked up again', async () => {
  const directory = join(scratch(), 'directory');
  mkdirSync(directory);
  const another = () => {
    rmSync(directory, { recursive: true });
    mkdirSync(directory);
  };
  expect(await replaced(directory, another)).toBe('new');
});

test('what the look-up finds is told: a directory that is a file by now', async () => {
  const directory = join(scratch(), 'directory');
  mkdirSync(directory);
  const file = () => {
    renameSync(directory, `${directory}-before`);
    rmSync(`${directory}-before`, { recursive: true });
    writeFileSync(directory, 'a file');
  };
  await expect(replaced(directory, file)).rejects.toMatchObject({ code: 'ENOTDIR' });
  expect(statSync(directory).isFile()).toBe(true);
});
