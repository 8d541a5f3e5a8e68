import { chmod, chown, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { isSystemError } from '../../base/errors.ts';

/** The content of a small text file; null when there is none. Throws open(2)'s other errors. */
export async function readIfPresent(path: string): Promise<string | null> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) return null;
    throw error;
  }
}

/**
 * Gives a small file new content in one step: readers see all of the old or all of the new. Permissions and owner stay;
 * a new file is root's, with mode 0644. One that is a mount of its own, as containers have, is written in place.
 */
export async function replaceFile(path: string, content: string): Promise<void> {
  const stage = `${path}.envd`;
  const status = await stat(path).catch(() => null);
  try {
    await writeFile(stage, content, { mode: 0o600 });
    await chown(stage, status?.uid ?? 0, status?.gid ?? 0);
    await chmod(stage, (status?.mode ?? 0o644) & 0o777);
    await rename(stage, path);
  } catch (error) {
    await rm(stage, { force: true });
    if (!isSystemError(error, 'EBUSY')) throw error;
    await writeFile(path, content);
  }
}
