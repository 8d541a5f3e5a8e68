import { readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { Place } from '../../../../../src/daemon/os/place.ts';
import { StagedFile } from '../../../../../src/daemon/services/files/staged-file.ts';
import { testLanes } from '../../../../support/lanes.ts';
import { scratch } from '../../../../support/scratch.ts';
import { ROOT } from '../../../../support/users.ts';

test('a temporary file that another process has replaced is an error that names the destination', async () => {
  const directory = scratch();
  const path = join(directory, 'file');
  using place = await Place.open(path, true, testLanes);
  await using staged = await StagedFile.openNamed(place, ROOT);
  const temporary = join(directory, readdirSync(directory)[0] ?? '');
  rmSync(temporary);
  writeFileSync(temporary, 'of another process');
  await expect(staged.replace(ROOT)).rejects.toThrow(
    `temporary file was replaced by another process before it was renamed: '${path}'`,
  );
});
