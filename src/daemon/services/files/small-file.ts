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
  readonly inodes: RecentInodes;
  readonly lanes: Lanes;
}

/** Longer paths are not remembered, in bytes. */
const LONGEST_PATH = 256;
const MOST_PATHS = 1024;

/** The inodes, `dev:ino`, of the files that were overwritten last: most likely they are still there. */
export class RecentInodes {
  readonly #byPath = new Map<string, string>();

  /** Takes it out of those remembered. */
  take(path: string): string | null {
    const inode = this.#byPath.get(path) ?? null;
    this.#byPath.delete(path);
    return inode;
  }

  remember(path: string, inode: string): void {
    if (path.length > LONGEST_PATH) return;
    this.#byPath.set(path, inode);
    for (const oldest of this.#byPath.keys()) {
      if (this.#byPath.size <= MOST_PATHS) return;
      this.#byPath.delete(oldest);
    }
  }
}

/**
 * Creates the file in one job of the thread pool, or overwrites it in two, in one if that was done recently: a job costs
 * more than the system calls. Returns false when it cannot be stored in this way, for any reason; then another way has
 * to be tried.
 */
export async function storeSmallFile(file: SmallFile): Promise<boolean> {
  const lane = laneOf(file.path);
  const recent = file.inodes.take(file.path);
  if (recent !== null && (await overwrite(file, recent, lane))) return true;
  const found = await file.lanes.runBatched(lane, () => store(file, ''));
  return typeof found === 'boolean' ? found : overwrite(file, found, lane);
}

/** False, without effect, if the path leads to another inode, or nowhere. */
async function overwrite(file: SmallFile, inode: string, lane: Lane): Promise<boolean> {
  const job = () => file.lanes.run(locking(lane), () => store(file, inode));
  const isDone = (await file.overwrites.run(inode, job)) === true;
  if (isDone) file.inodes.remember(file.path, inode);
  return isDone;
}

/** A mount that may not answer is not entered: false. */
function store(file: SmallFile, inode: string): Promise<boolean | string> {
  const { path, content, user, metadataPrefix } = file;
  return native.storeFile(path, inode, content, metadataPrefix, user.uid, user.gid);
}
