import { lstat, mkdtemp, rename, rmdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import process from 'node:process';
import { EnvdError, isSystemError } from '../../../base/errors.ts';
import { bytePath, displayPath } from '../../os/byte-path.ts';
import { about, explain } from '../../os/errno.ts';
import { native } from '../../os/native.ts';
import { Place } from '../../os/place.ts';
import type { User } from '../../os/users.ts';
import { copyTree } from './copy-tree.ts';
import type { Entry, EntrySource } from './entry.ts';
import { stat } from './stat.ts';

/**
 * Renames `source`, not following a symbolic link, to `destination`, whose missing parents are created. A file or an
 * empty directory at the destination is replaced as by rename(2). Across file systems it is copied with all attributes
 * next to the destination, renamed, then removed at the source. Throws `not_found` if the source does not exist.
 */
export async function move(
  source: string,
  destination: string,
  user: User,
  entries: EntrySource,
): Promise<Entry> {
  using from = await about(source, () => Place.open(source, false));
  // Before parents of the destination are created.
  const status = await about(source, () => from.status());
  if (!status) throw new EnvdError('not_found', `path not found: '${source}'`);
  await about(source, () => from.assertMayChange());
  using to = await openDestination(destination, user);
  try {
    await to.assertMayChange();
    if (status.isDirectory()) await about(source, () => assertMayLeave(from, to));
    await rename(from.path, to.path).catch(async (error: unknown) => {
      if (!isSystemError(error, 'EXDEV')) throw error;
      await moveAcross(from, to, [source, destination]);
    });
  } catch (error) {
    throw moveError(error, source, destination);
  }
  // Not by its path again, which may have led through the source.
  return await stat(destination, entries, to.path);
}

/** A directory of another user can be renamed, but not moved to another directory: rename(2), EACCES. */
async function assertMayLeave(from: Place, to: Place): Promise<void> {
  if (from.owner === null) return;
  const [old, next] = await Promise.all([lstat(from.beside('.')), lstat(to.beside('.'))]);
  if (old.dev !== next.dev || old.ino !== next.ino) await from.assertMayMove();
}

/** Opens the destination and creates its missing parents. */
async function openDestination(path: string, user: User): Promise<Place> {
  try {
    const place = await Place.open(path, false);
    try {
      await place.makeParents(user);
      return place;
    } catch (error) {
      place[Symbol.dispose]();
      throw error;
    }
  } catch (error) {
    if (!isSystemError(error, 'ENOTDIR')) throw explain(error, path);
    const message = `path is not a directory: '${dirname(path)}'`;
    throw new EnvdError('invalid_argument', message, { cause: error });
  }
}

/** `shown`: source and destination in errors. */
async function moveAcross(from: Place, to: Place, shown: readonly [string, string]): Promise<void> {
  if (await isInside(to, from)) throw intoItself(...shown);
  const before = await lstat(from.path);
  await inStage(to, shown[1], async (copy) => {
    await copyTree(bytePath(from.path), bytePath(copy.path), shown[0]);
    await rename(copy.path, to.path);
  });
  await removeIfUnchanged(from, before.ino, shown[0]);
}

/**
 * Runs `work` with a name in a new directory beside `place` that only root can enter, and removes what has that name
 * and the directory afterwards.
 */
async function inStage(place: Place, shown: string, work: (staged: Place) => Promise<void>): Promise<void> {
  // Mode 0700.
  const stage = await mkdtemp(`/proc/self/fd/${place.directory}/.envd-move-`);
  try {
    using staged = await Place.open(`${stage}/staged`, false);
    await assertPrivate(staged, shown);
    try {
      await work(staged);
    } finally {
      await native.removeTree(staged.path);
    }
  } finally {
    // It is gone if the owner of the directory has moved it.
    await rmdir(stage).catch(() => {});
  }
}

/** The owner of the directory may have replaced the new one by another, or by a symbolic link. */
async function assertPrivate(place: Place, shown: string): Promise<void> {
  const { uid, mode } = await lstat(place.beside('.'));
  if (uid === process.geteuid?.() && (mode & 0o777) === 0o700) return;
  throw new EnvdError('aborted', `temporary directory was replaced by another process: '${shown}'`);
}

/**
 * Does not remove an entry that has replaced the source meanwhile: it was not copied. A directory is first moved to
 * where nobody can exchange it for a directory of root's.
 */
async function removeIfUnchanged(from: Place, inode: number, shown: string): Promise<void> {
  const now = await from.status();
  if (now?.ino !== inode) return;
  if (!now.isDirectory()) return from.unlink();
  await inStage(from, shown, async (staged) => {
    await rename(from.path, staged.path);
    if ((await lstat(staged.path)).ino !== inode) await rename(staged.path, from.path);
  });
}

/** Whether the directory of `to` is in the tree at `from`; the copy would then recurse forever. */
async function isInside(to: Place, from: Place): Promise<boolean> {
  const above = await from.directoryPath();
  const source = `${above === '/' ? '' : above}/${displayPath(from.name)}`;
  const directory = await to.directoryPath();
  return directory === source || directory.startsWith(`${source}/`);
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
