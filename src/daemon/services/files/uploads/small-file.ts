import { laneOf, locking } from '../../../linux/lanes/lane.ts';
import { bytePath } from '../../../linux/paths/byte-path.ts';
import { decodeName } from '../../../linux/paths/names.ts';
import { native } from '../../../linux/system/native.ts';
import type { FileContext } from './context.ts';

/** What storing a small file needs to know of its upload. */
export type SmallFileContext = Pick<FileContext, 'user' | 'metadata'> & {
  readonly shared: Pick<FileContext['shared'], 'lanes' | 'overwrites'>;
};

/**
 * Creates the file at the absolute `path`, whose links are followed, in one job of the thread pool, or overwrites it in
 * two: a job costs more than the system calls. A file that has metadata is not overwritten in this way. Returns false
 * when it cannot be stored in this way, for any reason; then another way has to be tried.
 */
export async function storeSmallFile(
  path: string,
  content: Buffer,
  { user, metadata, shared: { lanes, overwrites } }: SmallFileContext,
): Promise<boolean> {
  // A mount that may not answer is not entered: the result is false.
  const store = (inode: string): Promise<boolean | string> =>
    native.storeFile(decodeName(path), inode, content, metadata.prefix, user.uid, user.gid);
  const lane = laneOf(bytePath(path));
  const found = await lanes.runBatched(lane, () => store(''));
  if (typeof found === 'boolean') return found;
  const overwrite = () => lanes.runBatched(locking(lane), () => store(found));
  return (await overwrites.run(found, overwrite)) === true;
}
