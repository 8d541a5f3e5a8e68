import { constants, type Stats } from 'node:fs';
import { basename } from 'node:path';
import { EnvdError, isSystemError } from '../../../../base/errors.ts';
import type { OpenFile } from '../../../linux/files/open-file.ts';
import { PathHandle } from '../../../linux/files/place.ts';
import type { Lanes } from '../../../linux/lanes/lanes.ts';
import { resolvePath } from '../../../linux/paths/paths.ts';
import { explain, isOutOfSpace } from '../../../linux/system/errno.ts';
import type { User } from '../../../linux/system/users.ts';
import { noSpace } from '../entries/errors.ts';
import { replaceByStaged } from './replace-file.ts';
import { StagedFile } from './staged-file.ts';
import type { UploadedFile } from './upload.ts';

export interface ComposeRequest {
  /** As the client sent them, in the order of concatenation. */
  readonly sourcePaths: readonly string[];
  readonly destination: string;
}

interface Source {
  readonly path: string;
  readonly status: Stats;
}

/**
 * Concatenates the sources into the destination, which appears atomically, then deletes them. Throws `invalid_argument`
 * for a source that is the destination or not a regular file, `not_found` for a missing source, `aborted` for one that
 * was replaced meanwhile, and `no_space`. When `signal` aborts, nothing more is done. The destination and the sources
 * then stay as they were or, if the destination has its name already, some sources are left.
 */
export async function composeFile(
  request: ComposeRequest,
  user: User,
  defaultWorkdir: string | null,
  lanes: Lanes,
  signal: AbortSignal,
): Promise<UploadedFile> {
  const path = resolvePath(request.destination, user, defaultWorkdir);
  const sources: Source[] = [];
  for (const source of request.sourcePaths) {
    signal.throwIfAborted();
    sources.push(await describeSource(resolvePath(source, user, defaultWorkdir), lanes));
  }
  await writeDestination(path, sources, user, lanes, signal);
  for (const source of sources) {
    signal.throwIfAborted();
    await removeSource(source, lanes);
  }
  return { path, name: basename(path), type: 'file' };
}

async function describeSource(path: string, lanes: Lanes): Promise<Source> {
  const status = await aboutSource(path, async () => {
    using place = await PathHandle.open(path, true, lanes);
    return await place.status();
  });
  if (!status) throw new EnvdError('not_found', `source '${path}' does not exist`);
  if (!status.isFile()) throw new EnvdError('invalid_argument', `source '${path}' is not a regular file`);
  // The source is removed at the end, when it is too late to refuse.
  await aboutSource(path, async () => {
    using place = await PathHandle.open(path, false, lanes);
    await place.assertMayChange();
  });
  return { path, status };
}

async function writeDestination(
  path: string,
  sources: readonly Source[],
  user: User,
  lanes: Lanes,
  signal: AbortSignal,
): Promise<void> {
  const length = sources.reduce((sum, { status }) => sum + status.size, 0);
  try {
    using place = await PathHandle.open(path, true, lanes);
    const previous = await checkDestination(place, path, sources);
    await using staged = (await StagedFile.open(place)) ?? (await StagedFile.openNamed(place, user));
    for (const source of sources) {
      signal.throwIfAborted();
      await append(staged, source, lanes);
    }
    signal.throwIfAborted();
    await replaceByStaged(staged, place, previous, user);
  } catch (error) {
    throw isOutOfSpace(error) ? await noSpace(length, path, error, lanes) : explain(error, path, 'make');
  }
}

/** Returns the status of the destination, or null. Throws `invalid_argument` if it cannot be replaced. */
async function checkDestination(
  place: PathHandle,
  shown: string,
  sources: readonly Source[],
): Promise<Stats | null> {
  const previous = await place.status();
  if (previous?.isDirectory()) throw new EnvdError('invalid_argument', `path is a directory: ${shown}`);
  if (previous && !previous.isFile()) {
    throw new EnvdError('invalid_argument', `destination '${shown}' is not a regular file`);
  }
  const same = sources.find(({ status }) => previous && isSameFile(status, previous));
  if (same) throw new EnvdError('invalid_argument', `source '${same.path}' is the destination`);
  return previous;
}

async function append(staged: StagedFile, { path, status }: Source, lanes: Lanes): Promise<void> {
  await using file = await aboutSource(path, async () => {
    using place = await PathHandle.open(path, true, lanes);
    return await place.openFile(constants.O_RDONLY | constants.O_NONBLOCK);
  });
  await assertUnchanged(path, file, status);
  await staged.append(file);
}

async function assertUnchanged(path: string, file: OpenFile, status: Stats): Promise<void> {
  if (isSameFile(await file.stat(), status)) return;
  throw new EnvdError('aborted', `source '${path}' was replaced by another file while it was read`);
}

/** Removes the source, or the symbolic link to it, unless another file has replaced it, which was not copied. */
async function removeSource({ path, status }: Source, lanes: Lanes): Promise<void> {
  try {
    using place = await PathHandle.open(path, false, lanes);
    await place.assertMayChange();
    // This check comes last, so that no look-up is between it and the removal.
    using target = await PathHandle.open(path, true, lanes);
    const now = await target.status();
    if (now && isSameFile(now, status)) await place.unlink();
  } catch (error) {
    if (!isSystemError(error, 'ENOENT')) throw explain(error, path);
  }
}

function isSameFile(left: Stats, right: Stats): boolean {
  return left.dev === right.dev && left.ino === right.ino;
}

async function aboutSource<T>(path: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!isSystemError(error, 'ENOENT')) throw explain(error, path);
    throw new EnvdError('not_found', `source '${path}' does not exist`, { cause: error });
  }
}
