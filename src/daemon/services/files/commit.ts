import { constants } from 'node:fs';
import { EnvdError, isSystemError } from '../../../base/errors.ts';
import type { KeyedQueues } from '../../../base/exclusion.ts';
import { native } from '../../os/native.ts';
import type { OpenFile } from '../../os/open-file.ts';
import type { Place } from '../../os/place.ts';
import type { User } from '../../os/users.ts';
import { type FileMetadata, replaceMetadata } from './metadata.ts';
import type { StagedFile } from './staged-file.ts';

/** What can be written over a file. */
export interface Content {
  /** In bytes. */
  readonly size: number;
  /** Writes all of it over the start of an open file. */
  copyTo(target: OpenFile): Promise<void>;
}

export interface Destination {
  readonly place: Place;
  /** As the client sees it. */
  readonly path: string;
  /** Whether there was a file when the upload began. */
  readonly exists: boolean;
  readonly user: User;
  readonly metadata: FileMetadata;
  /** Overwrites of one inode take turns, so that one of them wins whole. */
  readonly overwrites: KeyedQueues;
  /** Whether the storage must have the content first; the name is the caller's to see to. */
  readonly durable: boolean;
}

/** Others may create and remove the destination between two steps, but not for ever. */
const MAX_ATTEMPTS = 16;

/**
 * Makes the staged content the file at the destination. A new file appears complete; an existing one keeps its
 * inode, links and mode, but for set-id bits. Returns whether the file carries the metadata.
 */
export async function commit(staged: StagedFile, destination: Destination): Promise<boolean> {
  const steps = destination.exists ? [overwrite, create] : [create, overwrite];
  for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
    for (const step of steps) {
      const carriesMetadata = await step(staged, destination);
      if (carriesMetadata !== null) return carriesMetadata;
    }
  }
  throw new EnvdError('aborted', `path is created and removed all the time: '${destination.path}'`);
}

/** Null when the destination exists, or when its directory was missing and is there now. */
async function create(
  staged: StagedFile,
  { place, user, metadata, durable }: Destination,
): Promise<boolean | null> {
  // What has just been made carries nothing that would have to go.
  const carriesMetadata = isEmpty(metadata) || (await replaceMetadata(staged.descriptor, metadata));
  // Before it has a name: one that is stored is never without its content.
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

function isEmpty({ values }: FileMetadata): boolean {
  return Object.keys(values).length === 0;
}

/**
 * Makes `content` that of the file at the destination, or leaves that as it is. Returns whether the file carries the
 * metadata; null when there is nothing at the destination.
 */
export async function overwrite(content: Content, destination: Destination): Promise<boolean | null> {
  const target = await openExisting(destination.place);
  if (!target) return null;
  try {
    const status = await target.stat();
    if (!status.isFile()) {
      throw new EnvdError('invalid_argument', `path is not a regular file any more: '${destination.path}'`);
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
    // A link by now.
    if (!isSystemError(error, 'ELOOP')) throw error;
    await place.renew();
    return null;
  }
}

/** Whatever may fail for want of room comes first, while the old content can be kept. */
async function replace(
  target: OpenFile,
  content: Content,
  { place, user, metadata, durable }: Destination,
): Promise<boolean> {
  await native.reserveSpace(target.fd, content.size);
  const carriesMetadata = await replaceMetadataOrRelease(target, metadata);
  await giveTo(target, user, place);
  await content.copyTo(target);
  const { size } = await target.stat();
  if (size > content.size || content.size === 0) await target.truncate(content.size);
  if (durable) await target.sync();
  return carriesMetadata;
}

/**
 * Before the content is there, and without set-id bits, which the last owner could set until now. What a link of a user
 * leads to stays whose it is: he could have others' files given away.
 */
async function giveTo(target: OpenFile, { uid, gid }: User, { owner }: Place): Promise<void> {
  const status = await target.stat();
  if (owner === null && (status.uid !== uid || status.gid !== gid)) await target.chown(uid, gid);
  await target.dropSetIdBits();
}

/** What was reserved behind the end of the file goes back when the metadata does not fit. */
async function replaceMetadataOrRelease(target: OpenFile, metadata: FileMetadata): Promise<boolean> {
  try {
    return await replaceMetadata(target.fd, metadata);
  } catch (error) {
    const { size } = await target.stat();
    await target.truncate(size);
    throw error;
  }
}
