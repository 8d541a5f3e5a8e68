import { readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { DirectoryWriter } from '../../../../../../src/daemon/linux/files/directory-writer.ts';
import { PathHandle } from '../../../../../../src/daemon/linux/files/place.ts';
import { O_PATH } from '../../../../../../src/daemon/linux/paths/open-flags.ts';
import { StagedFile } from '../../../../../../src/daemon/services/files/uploads/staged-file.ts';
import { mountFuse } from '../../../../../support/machine/mounts.ts';
import { scratch } from '../../../../../support/machine/scratch.ts';
import { ROOT } from '../../../../../support/machine/users.ts';
import { testLanes } from '../../../../../support/services/lanes.ts';

test('a temporary file that another process has replaced is an error that names the destination', async () => {
  const directory = scratch();
  const path = join(directory, 'file');
  using place = await PathHandle.open(path, true, testLanes);
  await using staged = await StagedFile.openNamed(place, ROOT);
  const temporary = join(directory, readdirSync(directory)[0] ?? '');
  rmSync(temporary);
  writeFileSync(temporary, 'of another process');
  await expect(staged.replace(ROOT)).rejects.toThrow(
    `temporary file was replaced by another process before it was renamed: '${path}'`,
  );
});

/** The bits of the mode of the only file in a directory. */
function modeIn(directory: string): number {
  return statSync(join(directory, readdirSync(directory)[0] ?? '')).mode & 0o7777;
}

test.each([null, 0o600, 0o755])(
  'others cannot read a file with a temporary name, whose mode will be %o',
  async (mode) => {
    const directory = scratch();
    using place = await PathHandle.open(join(directory, 'file'), true, testLanes);
    await using staged = await StagedFile.openNamed(place, ROOT);
    if (mode !== null) await staged.setMode(mode);
    expect(modeIn(directory)).toBe(0o600);
    await staged.publish(ROOT);
    expect(modeIn(directory)).toBe(mode ?? 0o644);
  },
);

test('others cannot read a file of an archive that has a temporary name', async () => {
  const [mounted, behind] = mountFuse();
  using place = await PathHandle.open(join(mounted, 'file'), true, testLanes);
  await using directory = new DirectoryWriter(await place.openFile(O_PATH, '.'), null);
  await using _made = await directory.createFile();
  expect(modeIn(behind)).toBe(0o600);
});
