import { readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { PathHandle } from '../../../../../../src/daemon/linux/files/place.ts';
import { StagedFile } from '../../../../../../src/daemon/services/files/uploads/staged-file.ts';
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
