import { lstat, mkdtemp, realpath, rename } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { EnvdError, isSystemError } from '../../../base/errors.ts';
import { about, explain } from '../../os/errno.ts';
import { ensureDirectory } from '../../os/paths.ts';
import { removeTree } from '../../os/trees.ts';
import type { User } from '../../os/users.ts';
import { copyTree } from './copy-tree.ts';
import type { Entry, EntrySource } from './entry.ts';
import { stat } from './stat.ts';

/**
 * Renames `source`, a link itself, to `destination`, and makes the destination's missing parents. A file or an
 * empty directory at the destination is replaced, as rename(2) says. To another file system: copied beside the
 * destination with all attributes, renamed, then removed at the source. Throws `not_found` for the source.
 */
export async function move(
  source: string,
  destination: string,
  user: User,
  entries: EntrySource,
): Promise<Entry> {
  // Asked first, so that a missing source leaves no new directories behind.
  await about(source, () => lstat(source));
  await about(destination, () => ensureDirectory(dirname(destination), user));
  try {
    await rename(source, destination).catch(async (error: unknown) => {
      if (!isSystemError(error, 'EXDEV')) throw error;
      await moveAcross(source, destination);
    });
  } catch (error) {
    throw moveError(error, source, destination);
  }
  return stat(destination, entries);
}

async function moveAcross(source: string, destination: string): Promise<void> {
  if (await leadsInto(source, dirname(destination))) throw intoItself(source, destination);
  // Nobody else can see the half of it in there.
  const stage = await mkdtemp(join(dirname(destination), '.envd-move-'));
  try {
    const copy = join(stage, 'copy');
    await copyTree(source, copy);
    await rename(copy, destination);
  } finally {
    await removeTree(stage);
  }
  await removeTree(source);
}

/** Whether `directory` lies in the tree at `source`, which would then be copied without end. */
async function leadsInto(source: string, directory: string): Promise<boolean> {
  const from = join(await realpath(dirname(source)), basename(source));
  const to = await realpath(directory);
  return to === from || to.startsWith(`${from}/`);
}

function moveError(error: unknown, source: string, destination: string): unknown {
  if (isSystemError(error, 'EINVAL')) return intoItself(source, destination, { cause: error });
  if (isSystemError(error, 'EISDIR', 'ENOTDIR')) {
    const message = `cannot replace a directory by a file or a file by a directory: '${destination}'`;
    return new EnvdError('invalid_argument', message, { cause: error });
  }
  return explain(error, isSystemError(error, 'ENOENT') ? source : destination);
}

function intoItself(source: string, destination: string, options?: ErrorOptions): EnvdError {
  const message = `cannot move a directory into itself: '${source}' to '${destination}'`;
  return new EnvdError('invalid_argument', message, options);
}
