import { laneOf, locking } from '../../../linux/lanes/lane.ts';
import { bytePath } from '../../../linux/paths/byte-path.ts';
import { decodeName } from '../../../linux/paths/names.ts';
import { native } from '../../../linux/system/native.ts';
import type { FileContext } from './context.ts';

export type SmallFileContext = Pick<FileContext, 'user' | 'metadata'> & {
  readonly shared: Pick<FileContext['shared'], 'lanes' | 'overwrites'>;
};

/**
 * Creates the file at the absolute `path`, whose links are followed, in one job of the thread pool, or overwrites it in
 * two, because a job costs more than the system calls. It does not overwrite a file that has metadata. Returns false
 * when the file cannot be stored in this way, for any reason. Another way must be tried then.
 */
export async function storeSmallFile(
  path: string,
  content: Buffer,
  { user, metadata, shared: { lanes, overwrites } }: SmallFileContext,
): Promise<boolean> {
  // A mount that may not answer is not entered. The result is then false.
  const store = (inode: string): Promise<boolean | string> =>
    native.storeFile(decodeName(path), inode, content, metadata.prefix, user.uid, user.gid);
  const lane = laneOf(bytePath(path));
  const found = await lanes.runBatched(lane, () => store(''));
  if (typeof found === 'boolean') return found;
  const overwrite = () => lanes.runBatched(locking(lane), () => store(found));
  return (await overwrites.run(found, overwrite)) === true;
}
