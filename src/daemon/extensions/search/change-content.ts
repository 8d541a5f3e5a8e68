import { constants } from 'node:fs';
import { EnvdError, isSystemError } from '../../../base/errors.ts';
import type { OpenFile } from '../../linux/files/open-file.ts';
import { PathHandle } from '../../linux/files/place.ts';
import type { Lanes } from '../../linux/lanes/lanes.ts';
import { pathBuffer } from '../../linux/paths/byte-path.ts';
import { O_PATH } from '../../linux/paths/open-flags.ts';
import { explaining } from '../../linux/system/errno.ts';
import { native } from '../../linux/system/native.ts';
import { StagedFile } from '../../services/files/uploads/staged-file.ts';
import type { ChangedContent } from './program/protocol.ts';
import { versionText } from './program/version.ts';

const NEVER = AbortSignal.any([]);
const WRITE = constants.O_RDWR | constants.O_NONBLOCK | constants.O_NOCTTY | constants.O_NOFOLLOW;

/**
 * Overwrites a file with new content, which is stored beside it first. Keeps the owner, the mode without set-id bits, the
 * attributes and the links. `user` must have the right to write to the file; null means root. Throws `aborted` when the file
 * is no longer the one that was read, or when a link is on the path.
 */
export async function changeContent(
  { path, shown, length, version }: ChangedContent,
  content: AsyncIterable<Buffer>,
  user: number | null,
  lanes: Lanes,
): Promise<void> {
  await explaining(shown, async () => {
    using place = await PathHandle.open(pathBuffer(path), false, lanes);
    if (place.owner !== null) throw changed(shown);
    await using staged = (await StagedFile.open(place)) ?? (await inMemory(shown));
    for await (const piece of content) await staged.write([piece], NEVER);
    if (staged.size !== length)
      throw new EnvdError('aborted', `search has ended early: '${shown}' was not changed`);
    await using target = await openAs(place, user, shown);
    await overwriteBy(staged, target, version, shown);
  });
}

/** Opens the file with the rights of the user. */
async function openAs(place: PathHandle, user: number | null, shown: string): Promise<OpenFile> {
  try {
    await using directory = await place.openFile(O_PATH | constants.O_DIRECTORY, '.');
    const name = pathBuffer(place.name);
    return await directory.openOther(() => native.openAt(directory.fd, name, WRITE, user), WRITE);
  } catch (error) {
    if (isSystemError(error, 'ELOOP', 'ENOENT')) throw changed(shown);
    throw error;
  }
}

/** Overwrites the content. All steps that can fail with ENOSPC come first, so that the old content is kept then. */
async function overwriteBy(
  staged: StagedFile,
  target: OpenFile,
  version: string,
  shown: string,
): Promise<void> {
  const before = await target.exactStat();
  if (!before.isFile() || versionText(before) !== version) throw changed(shown);
  await target.run(() => native.reserveSpace(target.fd, 0, staged.size), { long: true });
  await target.dropSetIdBits();
  await staged.copyTo(target, 0);
  if (before.size > staged.size) await target.truncate(staged.size);
}

async function inMemory(shown: string): Promise<never> {
  throw new EnvdError('failed_precondition', `file system cannot stage the new content: '${shown}'`);
}

function changed(shown: string): EnvdError {
  return new EnvdError('aborted', `file was changed or replaced after it was read: '${shown}'`);
}
