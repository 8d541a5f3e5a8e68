import { laneOf, locking } from '../../../linux/lanes/lane.ts';
import { bytePath } from '../../../linux/paths/byte-path.ts';
import { decodeName } from '../../../linux/paths/names.ts';
import { native } from '../../../linux/system/native.ts';
import type { FileContext } from './context.ts';

export type SmallFileContext = Pick<FileContext, 'user' | 'metadata'> & {
  readonly shared: Pick<FileContext['shared'], 'lanes' | 'overwrites'>;
};

/**
 * Stores the file at the absolute `path`, whose links are followed, in one job of the thread pool, because a job costs more
 * than the system calls. Overwriting takes another one when only a job can find the file. It does not overwrite a file that
 * has metadata. Returns false when the file cannot be stored in this way, for any reason. Another way must be tried then.
 */
export async function storeSmallFile(
  path: string,
  content: Buffer,
  { user, metadata, shared: { lanes, overwrites } }: SmallFileContext,
): Promise<boolean> {
  const name = decodeName(path);
  const lane = laneOf(bytePath(path));
  // A mount that may not answer is not entered. The result is then false.
  const store = (inode: string): Promise<boolean | string> =>
    native.storeFile(name, inode, content, metadata.prefix, user.uid, user.gid);
  const found = native.inodeNow(name) ?? (await lanes.runBatched(lane, () => store('')));
  if (typeof found === 'boolean') return found;
  const overwrite = () => lanes.runBatched(locking(lane), () => store(found));
  return (await overwrites.run(found, overwrite)) === true;
}
