import { chmod, chown, readFile, rename, stat, unlink, writeFile } from 'node:fs/promises';
import { isSystemError } from '../../../base/errors.ts';

/** Returns the content of a small text file, or null if it does not exist. Throws open(2)'s other errors. */
export async function readIfPresent(path: string): Promise<string | null> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) return null;
    throw error;
  }
}

/** Removes a file if it exists. Throws unlink(2)'s other errors. */
export async function removeIfPresent(path: string): Promise<void> {
  try {
    await unlink(path);
  } catch (error) {
    if (!isSystemError(error, 'ENOENT')) throw error;
  }
}

/**
 * Replaces the content of a small file atomically by rename(2), and keeps its permissions and owner. A new file is
 * owned by root, with mode 0644. A file that is a mount point, as in containers, is written in place.
 */
export async function replaceTextFile(path: string, content: string): Promise<void> {
  const stage = `${path}.envd`;
  const status = await stat(path).catch(() => null);
  try {
    await writeFile(stage, content, { mode: 0o600 });
    await chown(stage, status?.uid ?? 0, status?.gid ?? 0);
    await chmod(stage, (status?.mode ?? 0o644) & 0o777);
    await rename(stage, path);
  } catch (error) {
    await removeIfPresent(stage);
    if (!isSystemError(error, 'EBUSY')) throw error;
    await writeFile(path, content);
  }
}
