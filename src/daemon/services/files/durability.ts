import { type FileHandle, open, realpath } from 'node:fs/promises';
import { dirname } from 'node:path';
import { isSystemError } from '../../../base/errors.ts';

/**
 * Waits until the storage has what an open file holds. Pipes, devices and the kernel's own files have none, and
 * say EINVAL: fsync(2).
 */
export async function syncFile(file: FileHandle): Promise<void> {
  try {
    await file.sync();
  } catch (error) {
    if (!isSystemError(error, 'EINVAL', 'ENOTSUP', 'EROFS')) throw error;
  }
}

/**
 * Waits until the storage has the names that lead to these files: their directories and all above them, since those
 * may be new as well. One that is stored already costs microseconds.
 */
export async function syncNames(paths: Iterable<string>): Promise<void> {
  const synced = new Set<string>();
  for (const path of paths) {
    for (
      let directory = await realpath(dirname(path));
      !synced.has(directory);
      directory = dirname(directory)
    ) {
      synced.add(directory);
      await syncDirectory(directory);
    }
  }
}

async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path);
  try {
    await syncFile(directory);
  } finally {
    await directory.close();
  }
}
