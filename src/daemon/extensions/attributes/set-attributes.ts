import { chmod, chown } from 'node:fs/promises';
import { EnvdError, isSystemError } from '../../../base/errors.ts';
import type { OpenFile } from '../../linux/files/open-file.ts';
import { PathHandle } from '../../linux/files/place.ts';
import { writeTimes } from '../../linux/files/times.ts';
import { O_PATH } from '../../linux/paths/open-flags.ts';
import { explaining } from '../../linux/system/errno.ts';
import type { User } from '../../linux/system/users.ts';
import type { Entry, EntrySource } from '../../services/files/entries/entry.ts';
import { stat } from '../../services/files/entries/stat.ts';
import { StagedFile } from '../../services/files/uploads/staged-file.ts';

/** Attributes that are null stay unchanged. Times are in nanoseconds since the epoch. */
export interface NewAttributes {
  readonly mode: number | null;
  readonly uid: number | null;
  readonly gid: number | null;
  readonly accessedNs: bigint | null;
  readonly modifiedNs: bigint | null;
}

/** chown(2) leaves an id unchanged if it has this value. */
const NO_CHANGE = 0xffff_ffff;
const MAX_ATTEMPTS = 16;

/**
 * Sets attributes of the entry at an absolute path, on one descriptor. Follows a symbolic link; if another user than root
 * made it, only what that user may set is set. With `create`, makes an empty file of the user if nothing is there. Throws
 * `not_found`, `permission_denied`, and `aborted` when the entry is replaced again and again.
 */
export async function setAttributes(
  path: string,
  attributes: NewAttributes,
  create: User | null,
  entries: EntrySource,
): Promise<Entry> {
  return explaining(path, async () => {
    using place = await PathHandle.open(path, true, entries.lanes);
    if (create) await makeIfMissing(place, create);
    await using file = await openEntry(place, path);
    await change(file, attributes, place.owner, path);
    return await stat(path, entries, place.path);
  });
}

async function makeIfMissing(place: PathHandle, user: User): Promise<void> {
  if ((await place.status()) !== null) return;
  await using staged = (await StagedFile.open(place)) ?? (await StagedFile.openNamed(place, user));
  try {
    if (!place.isBelowMissing) await staged.publish(user);
  } catch (error) {
    if (!isSystemError(error, 'EEXIST')) throw error;
  }
}

/** Opens the entry. It must not be a symbolic link, because all links have been followed. */
async function openEntry(place: PathHandle, path: string): Promise<OpenFile> {
  for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
    const file = await place.openFile(O_PATH);
    if (!(await file.stat()).isSymbolicLink()) return file;
    await file.close();
    await place.renew();
  }
  throw new EnvdError(
    'aborted',
    `path was replaced by other processes on each of ${MAX_ATTEMPTS} attempts: '${path}'`,
  );
}

/**
 * Sets the attributes. `owner` is the user who made a link on the path, or null. Changes the owner first, because that clears
 * set-id bits.
 */
async function change(
  file: OpenFile,
  { mode, uid, gid, accessedNs, modifiedNs }: NewAttributes,
  owner: number | null,
  path: string,
): Promise<void> {
  const status = await file.exactStat();
  const changesOwner = uid !== null || gid !== null;
  if (owner !== null && (changesOwner || Number(status.uid) !== owner)) {
    const message = `only the user who made the link on the path could change it, and cannot: '${path}'`;
    throw new EnvdError('permission_denied', message);
  }
  // This path leads to the entry itself, because the file is open with O_PATH.
  const at = `/proc/self/fd/${file.fd}`;
  if (changesOwner) await file.run(() => chown(at, uid ?? NO_CHANGE, gid ?? NO_CHANGE));
  if (mode !== null) await file.run(() => chmod(at, mode));
  if (accessedNs !== null || modifiedNs !== null)
    await file.run(() => writeTimes(file.fd, accessedNs ?? status.atimeNs, modifiedNs ?? status.mtimeNs));
}
