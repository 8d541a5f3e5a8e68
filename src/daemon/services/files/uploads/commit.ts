import { constants, type Stats } from 'node:fs';
import { EnvdError, isSystemError } from '../../../../base/errors.ts';
import type { OpenFile } from '../../../linux/files/open-file.ts';
import type { PathHandle } from '../../../linux/files/place.ts';
import { O_PATH } from '../../../linux/paths/open-flags.ts';
import { native } from '../../../linux/system/native.ts';
import { type FileVersion, versionOf } from '../entries/file-change.ts';
import { isEmpty, replaceMetadata } from '../entries/metadata.ts';
import type { FileContext } from './context.ts';
import { contested, MAX_ATTEMPTS, replaceByStaged } from './replace-file.ts';
import { StagedFile } from './staged-file.ts';

/** This content can be written over a file. */
export interface WritableContent {
  readonly size: number;
  /** Writes all of it to an open file from `offset` on, or at the end if the file is open with O_APPEND. */
  copyTo(target: OpenFile, offset: number): Promise<void>;
}

export interface Destination {
  readonly place: PathHandle;
  readonly path: string;
  /** Says whether the file existed when the upload began. */
  readonly exists: boolean;
  /** The content of a durable upload is synced before it has its name. The caller syncs the directory. */
  readonly context: Pick<FileContext, 'user' | 'metadata' | 'change' | 'durable'> & {
    readonly shared: Pick<FileContext['shared'], 'overwrites'>;
  };
}

/**
 * Creates or overwrites the file at the destination with the staged content. A new file appears complete. An existing
 * one keeps its inode, hard links and mode except set-id bits. A program that is running is replaced instead. Returns
 * whether the metadata was stored. Throws `aborted` after 16 attempts.
 */
export async function publish(staged: StagedFile, destination: Destination): Promise<boolean> {
  const steps = destination.exists ? [overwrite, create] : [create, overwrite];
  for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
    for (const step of steps) {
      const carriesMetadata = await step(staged, destination);
      if (carriesMetadata !== null) return carriesMetadata;
    }
  }
  throw contested(destination.path);
}

/** Returns null when the destination exists, or when its directory was removed meanwhile. */
async function create(staged: StagedFile, destination: Destination): Promise<boolean | null> {
  const { place, context } = destination;
  const { user, change } = context;
  change.assertExpected?.(null);
  // In a new file, a hole comes before the offset.
  const offset = typeof change.placement === 'number' ? change.placement : 0;
  await using shifted = offset > 0 ? await staged.shiftedBy(offset, user) : null;
  const made = shifted ?? staged;
  const carriesMetadata = await complete(made, context);
  try {
    await place.makeParents(user);
    await made.publish(user);
    return carriesMetadata;
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) await place.renew();
    else if (!isSystemError(error, 'EEXIST')) throw error;
    return null;
  }
}

/** Gives a file that has no name yet all that belongs to it. Returns whether the metadata was stored. */
async function complete(
  staged: StagedFile,
  { metadata, change, durable }: Destination['context'],
): Promise<boolean> {
  // A new file has no old metadata to remove.
  const carriesMetadata = isEmpty(metadata) || (await replaceMetadata(staged.file, metadata));
  if (change.mode !== null) await staged.setMode(change.mode);
  // The sync comes before the link, so that after a crash the name never refers to missing content.
  if (durable) await staged.file.sync();
  return carriesMetadata;
}

/**
 * Overwrites the file at the destination with `content`. Returns whether the metadata was stored, or null if the
 * destination does not exist. Throws `invalid_argument` if it is not a regular file.
 */
export async function overwrite(content: WritableContent, destination: Destination): Promise<boolean | null> {
  const isWhole = destination.context.change.placement === 'whole';
  try {
    await using target = await openExisting(destination);
    if (!target) return null;
    const status = await target.exactStat();
    if (!status.isFile()) {
      throw new EnvdError('invalid_argument', `path is no longer a regular file: '${destination.path}'`);
    }
    const inode = `${status.dev}:${status.ino}`;
    return await destination.context.shared.overwrites.run(inode, () =>
      replace(target, content, destination),
    );
  } catch (error) {
    // The kernel lets nobody write to a program that is running.
    if (!isWhole || !(content instanceof StagedFile) || !isSystemError(error, 'ETXTBSY')) throw error;
    return replaceProgram(content, destination);
  }
}

/** Replaces a program that is running by a new file. Returns null when the program is gone. */
async function replaceProgram(staged: StagedFile, destination: Destination): Promise<boolean | null> {
  const { place, context } = destination;
  const { user, change, shared } = context;
  const previous = await place.status();
  if (!previous?.isFile()) return null;
  return shared.overwrites.run(`${previous.dev}:${previous.ino}`, async () => {
    if (change.assertExpected) change.assertExpected(await versionAt(place));
    const carriesMetadata = await complete(staged, context);
    await replaceByStaged(staged, place, { mode: change.mode ?? previous.mode }, user);
    return carriesMetadata;
  });
}

/** Returns the version of the file at the place, or null when there is none. */
export async function versionAt(place: PathHandle): Promise<FileVersion | null> {
  if (place.isBelowMissing) return null;
  try {
    await using file = await place.openFile(O_PATH);
    return versionOf(await file.exactStat());
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) return null;
    throw error;
  }
}

async function openExisting({ place, context: { change } }: Destination): Promise<OpenFile | null> {
  if (place.isBelowMissing) return null;
  // With O_APPEND nothing is overwritten that another process appends at the same time.
  const append = change.placement === 'end' ? constants.O_APPEND : 0;
  try {
    return await place.openFile(constants.O_WRONLY | constants.O_NONBLOCK | constants.O_NOCTTY | append);
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) return null;
    // A symbolic link has replaced the file.
    if (!isSystemError(error, 'ELOOP')) throw error;
    await place.renew();
    return null;
  }
}

/** Replaces the content. Everything that may fail with ENOSPC comes first, so that the old content is kept then. */
async function replace(
  target: OpenFile,
  content: WritableContent,
  destination: Destination,
): Promise<boolean> {
  const { place, path } = destination;
  const { metadata, change, durable } = destination.context;
  const before = await target.stat();
  if (change.assertExpected) change.assertExpected(versionOf(await target.exactStat()));
  if (change.mode !== null && place.owner !== null && place.owner !== before.uid)
    throw new EnvdError(
      'permission_denied',
      `mode of a file behind a link can be set by its owner only: '${path}'`,
    );
  const isWhole = change.placement === 'whole';
  const offset = change.placement === 'end' ? before.size : isWhole ? 0 : Number(change.placement);
  let carriesMetadata = false;
  try {
    await target.run(() => native.reserveSpace(target.fd, offset, content.size), { long: true });
    // A part of the content changes neither owner nor metadata, unless metadata is sent.
    if (isWhole || !isEmpty(metadata)) carriesMetadata = await replaceMetadata(target, metadata);
    if (isWhole) await changeOwner(target, destination);
    await target.dropSetIdBits();
    await content.copyTo(target, offset);
  } catch (error) {
    await restore(target, before).catch(() => {});
    throw error;
  }
  const { size } = await target.stat();
  if (isWhole && (size > content.size || content.size === 0)) await target.truncate(content.size);
  if (change.mode !== null) await target.chmod(change.mode);
  if (durable) await target.sync();
  return carriesMetadata;
}

/** Gives the file back to its owner, and releases the blocks that were reserved beyond its end. */
async function restore(target: OpenFile, before: Stats): Promise<void> {
  const { uid, gid, size } = await target.stat();
  if (uid !== before.uid || gid !== before.gid) await target.chown(before.uid, before.gid);
  await target.truncate(Math.min(size, before.size));
}

/**
 * Sets the owner. This comes before the content is written, and before set-id bits are cleared that the previous owner
 * may have set. Behind a user's symbolic link the owner is kept, because the link could otherwise be used to change the
 * owner of other users' files.
 */
async function changeOwner(target: OpenFile, { context, place }: Destination): Promise<void> {
  const { uid, gid } = context.user;
  const status = await target.stat();
  if (place.owner === null && (status.uid !== uid || status.gid !== gid)) await target.chown(uid, gid);
}
