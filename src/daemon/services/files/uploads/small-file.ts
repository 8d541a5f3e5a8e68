import type { KeyedQueues } from '../../../../base/exclusion.ts';
import { laneOf, locking } from '../../../linux/lanes/lane.ts';
import type { Lanes } from '../../../linux/lanes/lanes.ts';
import { bytePath } from '../../../linux/paths/byte-path.ts';
import { decodeName } from '../../../linux/paths/names.ts';
import { native } from '../../../linux/system/native.ts';
import type { User } from '../../../linux/system/users.ts';

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
  const lane = laneOf(bytePath(file.path));
  const found = await file.lanes.runBatched(lane, () => store(file, ''));
  if (typeof found === 'boolean') return found;
  const overwrite = () => file.lanes.runBatched(locking(lane), () => store(file, found));
  return (await file.overwrites.run(found, overwrite)) === true;
}

/** A mount that may not answer is not entered: false. */
function store(file: SmallFile, inode: string): Promise<boolean | string> {
  const { path, content, user, metadataPrefix } = file;
  return native.storeFile(decodeName(path), inode, content, metadataPrefix, user.uid, user.gid);
}
