import { constants, type Stats } from 'node:fs';
import { type FileHandle, open, stat, unlink } from 'node:fs/promises';
import { basename } from 'node:path';
import { EnvdError, isSystemError } from '../../../base/errors.ts';
import { explain, isOutOfSpace } from '../../os/errno.ts';
import { followLinks } from '../../os/links.ts';
import { resolvePath } from '../../os/paths.ts';
import type { User } from '../../os/users.ts';
import { noSpace } from './errors.ts';
import { replaceFile } from './replace-file.ts';
import { StagedFile } from './staged-file.ts';
import type { UploadedFile } from './upload.ts';

export interface ComposeRequest {
  /** As the client sent them, in the order of their contents. */
  readonly sourcePaths: readonly string[];
  readonly destination: string;
}

interface Source {
  readonly path: string;
  readonly status: Stats;
}

/**
 * Concatenates files into one, which appears complete or not at all, and deletes them then.
 * Throws `invalid_argument` for no sources, no destination, a source that is the destination or no regular file;
 * `not_found` for a missing source; `no_space`.
 */
export async function compose(
  request: ComposeRequest,
  user: User,
  defaultWorkdir: string | null,
): Promise<UploadedFile> {
  if (request.sourcePaths.length === 0) throw new EnvdError('invalid_argument', 'source_paths is empty');
  if (request.destination === '') throw new EnvdError('invalid_argument', 'destination is empty');
  const path = resolvePath(request.destination, user, defaultWorkdir);
  const sources: Source[] = [];
  for (const source of request.sourcePaths) {
    sources.push(await describeSource(resolvePath(source, user, defaultWorkdir)));
  }
  await writeDestination(path, sources, user);
  for (const source of sources) await removeSource(source);
  return { path, name: basename(path), type: 'file' };
}

async function describeSource(path: string): Promise<Source> {
  const status = await aboutSource(path, () => stat(path));
  if (!status.isFile()) throw new EnvdError('invalid_argument', `source '${path}' is not a regular file`);
  return { path, status };
}

async function writeDestination(path: string, sources: readonly Source[], user: User): Promise<void> {
  const length = sources.reduce((sum, { status }) => sum + status.size, 0);
  try {
    const destination = await followLinks(path);
    const previous = await checkDestination(destination, path, sources);
    await using staged =
      (await StagedFile.open(destination)) ?? (await StagedFile.openNamed(destination, user));
    for (const source of sources) await append(staged, source);
    await replaceFile(staged, destination, previous, user);
  } catch (error) {
    throw isOutOfSpace(error) ? await noSpace(length, error) : explain(error, path, 'make');
  }
}

/** What is at the destination now, or null. */
async function checkDestination(
  destination: string,
  shown: string,
  sources: readonly Source[],
): Promise<Stats | null> {
  const previous = await stat(destination).catch((error) => {
    if (isSystemError(error, 'ENOENT')) return null;
    throw error;
  });
  if (previous?.isDirectory()) throw new EnvdError('invalid_argument', `path is a directory: ${shown}`);
  if (previous && !previous.isFile()) {
    throw new EnvdError('invalid_argument', `destination '${shown}' is not a regular file`);
  }
  const same = sources.find(({ status }) => previous && isSameFile(status, previous));
  if (same) throw new EnvdError('invalid_argument', `source '${same.path}' is the destination`);
  return previous;
}

async function append(staged: StagedFile, { path, status }: Source): Promise<void> {
  const file = await aboutSource(path, () => open(path, constants.O_RDONLY | constants.O_NONBLOCK));
  try {
    await assertUnchanged(path, file, status);
    await staged.append(file);
  } finally {
    await file.close();
  }
}

async function assertUnchanged(path: string, file: FileHandle, status: Stats): Promise<void> {
  if (isSameFile(await file.stat(), status)) return;
  throw new EnvdError('aborted', `source '${path}' was replaced by another file meanwhile`);
}

/** What has taken the source's place since was not copied, and stays. */
async function removeSource({ path, status }: Source): Promise<void> {
  try {
    if (isSameFile(await stat(path), status)) await unlink(path);
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
