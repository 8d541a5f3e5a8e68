import { readlink, realpath } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { isSystemError } from '../../base/errors.ts';

/** MAXSYMLINKS of the kernel; a cycle is told by the kernel itself, this ends chains that change meanwhile. */
const MAX_LINKS = 40;

/**
 * The path that `path` leads to when its last part is a link: also through links to what does not exist yet.
 * Throws ELOOP for a cycle.
 */
export async function followLinks(path: string, depth = MAX_LINKS): Promise<string> {
  try {
    return await realpath(path);
  } catch (error) {
    if (!isSystemError(error, 'ENOENT') || depth === 0) throw error;
  }
  const target = await linkTarget(path);
  if (target === null) return path;
  return followLinks(resolve(await realpath(dirname(path)), target), depth - 1);
}

async function linkTarget(path: string): Promise<string | null> {
  try {
    return await readlink(path);
  } catch (error) {
    if (isSystemError(error, 'ENOENT', 'EINVAL')) return null;
    throw error;
  }
}
