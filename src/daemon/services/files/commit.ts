import { constants, type Stats } from 'node:fs';
import { EnvdError, isSystemError } from '../../../base/errors.ts';
import type { KeyedQueues } from '../../../base/exclusion.ts';
import { native } from '../../os/native.ts';
import type { OpenFile } from '../../os/open-file.ts';
import type { Place } from '../../os/place.ts';
import type { User } from '../../os/users.ts';
import { type FileMetadata, isEmpty, replaceMetadata } from './metadata.ts';
import type { StagedFile } from './staged-file.ts';

/** Content that can be written over a file. */
export interface Content {
  /** In bytes. */
  readonly size: number;
  /** Writes all of it to an open file, at offset 0. */
  copyTo(target: OpenFile): Promise<void>;
}

export interface Destination {
  readonly place: Place;
  /** The path in errors. */
  readonly path: string;
  /** Whether the file existed when the upload began. */
  readonly exists: boolean;
  readonly user: User;
  readonly metadata: FileMetadata;
  /** Serialises overwrites of one inode, so that contents are not mixed. */
  readonly overwrites: KeyedQueues;
  /** Whether to fsync(2) the content first; the caller syncs the directory. */
  readonly durable: boolean;
}

/** Attempts when other processes create and remove the destination between two steps. */
const MAX_ATTEMPTS = 16;

/**
 * Creates or overwrites the file at the destination with the staged content. A new file appears complete; an existing
 * one keeps its inode, hard links and mode except set-id bits. Returns whether the metadata was stored. Throws
 * `aborted` after 16 attempts.
 */
export async function commit(staged: StagedFile, destination: Destination): Promise<boolean> {
  const steps = destination.exists ? [overwrite, create] : [create, overwrite];
  for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
    for (const step of steps) {
      const carriesMetadata = await step(staged, destination);
      if (carriesMetadata !== null) return carriesMetadata;
    }
  }
  throw new EnvdError(
    'aborted',
    `path was created and removed by other processes on each of ${MAX_ATTEMPTS} attempts: '${destination.path}'`,
  );
}

/** Null when the destination exists, or when its directory was removed meanwhile. */
async function create(
  staged: StagedFile,
  { place, user, metadata, durable }: Destination,
): Promise<boolean | null> {
  // A new file has no old metadata to remove.
  const carriesMetadata = isEmpty(metadata) || (await replaceMetadata(staged.file, metadata));
  // Before it is linked, so that after a crash the name never refers to missing content.
  if (durable) await staged.sync();
  try {
    await place.makeParents(user);
    await staged.publish(user);
    return carriesMetadata;
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) await place.renew();
    else if (!isSystemError(error, 'EEXIST')) throw error;
    return null;
  }
}

/**
 * Overwrites the file at the destination with `content`. Returns whether the metadata was stored; null if the
 * destination does not exist. Throws `invalid_argument` if it is not a regular file.
 */
export async function overwrite(content: Content, destination: Destination): Promise<boolean | null> {
  const target = await openExisting(destination.place);
  if (!target) return null;
  try {
    const status = await target.exactStat();
    if (!status.isFile()) {
      throw new EnvdError('invalid_argument', `path is no longer a regular file: '${destination.path}'`);
    }
    const inode = `${status.dev}:${status.ino}`;
    return await destination.overwrites.run(inode, () => replace(target, content, destination));
  } finally {
    await target.close();
  }
}

async function openExisting(place: Place): Promise<OpenFile | null> {
  if (place.isBelowMissing) return null;
  try {
    return await place.openFile(constants.O_WRONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) return null;
    // Replaced by a symbolic link.
    if (!isSystemError(error, 'ELOOP')) throw error;
    await place.renew();
    return null;
  }
}

/** Everything that may fail with ENOSPC comes first, so that the old content is kept then. */
async function replace(
  target: OpenFile,
  content: Content,
  { place, user, metadata, durable }: Destination,
): Promise<boolean> {
  const before = await target.stat();
  let carriesMetadata = false;
  try {
    await target.run(() => native.reserveSpace(target.fd, content.size), { long: true });
    carriesMetadata = await replaceMetadata(target, metadata);
    await changeOwner(target, user, place);
    await content.copyTo(target);
  } catch (error) {
    await restore(target, before).catch(() => {});
    throw error;
  }
  const { size } = await target.stat();
  if (size > content.size || content.size === 0) await target.truncate(content.size);
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
 * Sets the owner before the content is written, and clears set-id bits that the previous owner may have set. Behind a
 * user's symbolic link the owner is kept: otherwise the link could be used to change the owner of other users' files.
 */
async function changeOwner(target: OpenFile, { uid, gid }: User, { owner }: Place): Promise<void> {
  const status = await target.stat();
  if (owner === null && (status.uid !== uid || status.gid !== gid)) await target.chown(uid, gid);
  await target.dropSetIdBits();
}
