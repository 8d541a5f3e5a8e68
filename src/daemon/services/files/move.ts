import { mkdtemp, rmdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import process from 'node:process';
import { EnvdError, isSystemError } from '../../../base/errors.ts';
import { PathHandle } from '../../linux/files/place.ts';
import { removeTree } from '../../linux/files/remove-tree.ts';
import type { Lanes } from '../../linux/lanes/lanes.ts';
import { bytePath, joinBytes } from '../../linux/paths/byte-path.ts';
import { isAtOrBelow } from '../../linux/paths/mounts.ts';
import { explain, explaining } from '../../linux/system/errno.ts';
import { native } from '../../linux/system/native.ts';
import type { User } from '../../linux/system/users.ts';
import { copyTree } from './copy-tree.ts';
import type { Entry, EntrySource } from './entries/entry.ts';
import { stat } from './entries/stat.ts';

/**
 * Renames `source` to `destination`, whose missing parents are created. A symbolic link is renamed itself. A file or an
 * empty directory at the destination is replaced as by rename(2). Across file systems, the source is copied with all
 * attributes next to the destination, the copy is renamed, and the source is removed. When `signal` aborts before the
 * copy has its name, the copy is removed. Afterwards the source is removed, even though nobody waits for it. Throws
 * `not_found` if the source does not exist.
 */
export async function move(
  source: string,
  destination: string,
  user: User,
  entries: EntrySource,
  signal: AbortSignal,
): Promise<Entry> {
  const { lanes } = entries;
  using from = await explaining(source, () => PathHandle.open(source, false, lanes));
  // This check comes before parents of the destination are created.
  const status = await explaining(source, () => from.status());
  if (!status) throw notFound(source);
  await explaining(source, () => from.assertMayChange());
  using to = await openDestination(destination, user, lanes);
  try {
    await to.assertMayChange();
    if (status.isDirectory()) await explaining(source, () => assertMayLeave(from, to));
    await to.moveHere(from).catch(async (error: unknown) => {
      if (!isSystemError(error, 'EXDEV')) throw error;
      await moveAcross(from, to, [source, destination], lanes, signal);
    });
  } catch (error) {
    throw moveError(error, source, destination);
  }
  // The destination's path is not resolved again, because it may have led through the source.
  return await stat(destination, entries, to.path);
}

/** Throws EACCES if `from.owner` would move another user's directory to another directory. Source: rename(2). */
async function assertMayLeave(from: PathHandle, to: PathHandle): Promise<void> {
  if (from.owner === null) return;
  const [old, next] = await Promise.all([from.directoryStatus(), to.directoryStatus()]);
  if (old.dev !== next.dev || old.ino !== next.ino) await from.assertMayMove();
}

/** Opens a destination, not following a symbolic link, and creates its missing parents. */
export async function openDestination(path: string, user: User, lanes: Lanes): Promise<PathHandle> {
  try {
    const place = await PathHandle.open(path, false, lanes);
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

/** `shown` has source and destination for errors. */
async function moveAcross(
  from: PathHandle,
  to: PathHandle,
  shown: readonly [string, string],
  lanes: Lanes,
  signal: AbortSignal,
): Promise<void> {
  if (await isInside(to, from)) throw intoItself(...shown);
  const before = await from.status();
  if (!before) throw notFound(shown[0]);
  await inStage(to, shown[1], lanes, async (copy) => {
    const source = { directory: from.directory, name: from.name, lane: from.lane };
    await copyTree(source, { path: bytePath(copy.path), lane: copy.lane }, shown[0], lanes, signal);
    await to.moveHere(copy);
  });
  await removeIfUnchanged(from, before.ino, shown[0], lanes);
}

/**
 * Runs `work` with a name in a new directory, which is next to `place` and which only root can enter. Then it removes
 * what has that name, and the directory.
 */
export async function inStage(
  place: PathHandle,
  shown: string,
  lanes: Lanes,
  work: (staged: PathHandle) => Promise<void>,
): Promise<void> {
  const stage = await makeStage(place);
  try {
    using staged = await PathHandle.open(`${stage}/staged`, false, lanes);
    await assertPrivate(staged, shown);
    try {
      await work(staged);
    } finally {
      await twice(() => removeAll(staged));
    }
  } finally {
    // The directory is gone if the owner of its parent has moved it.
    await twice(() => place.run(() => rmdir(stage))).catch(() => {});
  }
}

async function removeAll(place: PathHandle): Promise<void> {
  await removeTree(() => place.run(() => native.removeTree(place.path), { long: true }));
}

/** Tries again once, so that a momentary shortage leaves no temporary name. */
function twice(work: () => Promise<void>): Promise<void> {
  return work().catch(work);
}

/** Creates a directory of mode 0700 next to the place. */
async function makeStage(place: PathHandle): Promise<string> {
  let isGivenUp = false;
  const make = async () => {
    const stage = await mkdtemp(`/proc/self/fd/${place.directory}/.envd-move-`);
    if (isGivenUp) await rmdir(stage);
    return stage;
  };
  try {
    return await place.run(make);
  } catch (error) {
    isGivenUp = true;
    throw error;
  }
}

/** Throws `aborted` if the owner of the parent has replaced the new directory by another one, or by a symbolic link. */
async function assertPrivate(place: PathHandle, shown: string): Promise<void> {
  const { uid, mode } = await place.directoryStatus();
  if (uid === process.geteuid?.() && (mode & 0o777) === 0o700) return;
  throw new EnvdError('aborted', `temporary directory was replaced by another process: '${shown}'`);
}

/**
 * Removes the source unless another entry has replaced it, which was not copied. A directory is first moved to where
 * nobody can exchange it for a directory of root's.
 */
async function removeIfUnchanged(
  from: PathHandle,
  inode: number,
  shown: string,
  lanes: Lanes,
): Promise<void> {
  const now = await from.status();
  if (now?.ino !== inode) return;
  if (!now.isDirectory()) return from.unlink();
  await inStage(from, shown, lanes, async (staged) => {
    await staged.moveHere(from);
    let isRemoved = false;
    try {
      if ((await staged.status())?.ino !== inode) return;
      await twice(() => removeAll(staged));
      isRemoved = true;
    } finally {
      // An entry that replaced the source, or what cannot be removed, goes back to where it was.
      if (!isRemoved) await from.moveHere(staged);
    }
  });
}

/** Tells whether the directory of `to` is in the tree at `from`. The copy would then recurse forever. */
export async function isInside(to: PathHandle, from: PathHandle): Promise<boolean> {
  const above = await from.directoryPath();
  return isAtOrBelow(joinBytes(above, from.name), await to.directoryPath());
}

function notFound(path: string): EnvdError {
  return new EnvdError('not_found', `path not found: '${path}'`);
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
