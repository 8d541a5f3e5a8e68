import { constants, fstatSync } from 'node:fs';
import { expect, test } from 'vitest';
import { DirectoryReader } from '../../../../../src/daemon/linux/files/directory-reader.ts';
import { PathHandle } from '../../../../../src/daemon/linux/files/place.ts';
import { scratch } from '../../../../support/machine/scratch.ts';
import { testLanes } from '../../../../support/services/lanes.ts';

test('is closed when it has been disposed of', async () => {
  using place = await PathHandle.open(scratch(), true, testLanes);
  const reader = new DirectoryReader(await place.openFile(constants.O_DIRECTORY), null);
  const { fd } = reader.file;
  expect(await reader.next()).toEqual([]);
  await reader[Symbol.asyncDispose]();
  expect(() => fstatSync(fd)).toThrow('EBADF');
});
