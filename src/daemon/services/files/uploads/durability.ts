import { constants } from 'node:fs';
import { dirname } from 'node:path';
import { PathHandle } from '../../../linux/files/place.ts';
import type { Lanes } from '../../../linux/lanes/lanes.ts';
import { type BytePath, displayPath, pathBuffer } from '../../../linux/paths/byte-path.ts';
import { explaining } from '../../../linux/system/errno.ts';

/** Calls fsync(2) on these directories and all their parents, which may be new too. It is cheap if nothing changed. */
export async function syncDirectories(paths: Iterable<BytePath>, lanes: Lanes): Promise<void> {
  const synced = new Set<BytePath>();
  for (const path of paths) {
    for (let directory = path; !synced.has(directory); directory = dirname(directory)) {
      synced.add(directory);
      await explaining(displayPath(directory), () => syncDirectory(directory, lanes));
    }
  }
}

async function syncDirectory(path: BytePath, lanes: Lanes): Promise<void> {
  using place = await PathHandle.open(pathBuffer(path), false, lanes);
  await using directory = await place.openFile(constants.O_RDONLY | constants.O_DIRECTORY);
  await directory.sync();
}
