import type { KeyedQueues } from '../../../base/exclusion.ts';
import { type Lane, laneOf, locking } from '../../os/lane.ts';
import type { Lanes } from '../../os/lanes.ts';
import { native } from '../../os/native.ts';
import type { User } from '../../os/users.ts';

export interface SmallFile {
  /** The absolute path; links are followed. */
  readonly path: string;
  readonly content: Buffer;
  readonly user: User;
  /** Attributes with this prefix hold metadata; a file that has any is not overwritten in this way. */
  readonly metadataPrefix: string;
  /** Serialises overwrites of one inode. */
  readonly overwrites: KeyedQueues;
  readonly lanes: Lanes;
}

/**
 * Creates the file in one job of the thread pool, or overwrites it in two: a job costs more than the system calls.
 * Returns false when it cannot be stored in this way, for any reason; then another way has to be tried.
 */
export async function storeSmallFile(file: SmallFile): Promise<boolean> {
  const lane = laneOf(file.path);
  const found = await store(file, '', lane);
  if (typeof found === 'boolean') return found;
  return file.overwrites.run(found, async () => (await store(file, found, locking(lane))) === true);
}

/** A mount that may not answer is not entered: false. */
async function store(file: SmallFile, inode: string, lane: Lane): Promise<boolean | string> {
  const { path, content, user, metadataPrefix, lanes } = file;
  return lanes.run(lane, () => native.storeFile(path, inode, content, metadataPrefix, user.uid, user.gid));
}
