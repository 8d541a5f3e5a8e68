import { constants } from 'node:fs';
import { isFuseMount } from '../paths/mounts.ts';
import { O_PATH, O_TMPFILE } from '../paths/open-flags.ts';

/** Describes where a job of the thread pool waits for its turn; see `Lanes`. */
export interface Lane {
  /** Jobs in this lane may enter the mounts with these ids although their servers may not answer. */
  readonly mounts: readonly number[];
  /** Jobs are counted and limited under these keys. */
  readonly keys: readonly string[];
  /** Says how long callers wait. */
  readonly patience: Patience;
}

export type Patience = 'short' | 'long' | 'endless';

/** Jobs on open files of local disks run here, because nobody can delay them. */
export const QUICK: Lane = { mounts: [], keys: [], patience: 'endless' };
/** These jobs (write(2), ftruncate(2)) wait for the lock of an open file, which others may hold for seconds. */
const LOCKING: Lane = { mounts: [], keys: ['locks'], patience: 'endless' };

/**
 * Jobs that read procfs run here. A process can delay a read of its memory for any time, by a page that a FUSE server must
 * provide, and everybody can keep a directory of procfs locked.
 */
export const PROCFS: Lane = { mounts: [], keys: ['processes'], patience: 'short' };

/**
 * Returns the lane for jobs that look up or create the last name of an absolute path. They wait for the lock of its
 * directory. Any process that may read the directory can hold that lock for as long as it likes: getdents64(2) holds it
 * while it writes to memory that a FUSE server must fill.
 */
export function laneOf(path: string): Lane {
  return { mounts: [], keys: keysOf(path), patience: 'short' };
}

/** Returns the lane for a job that removes the tree at an absolute path. */
export function removing(path: string): Lane {
  const keys = keysOf(path);
  return { mounts: [], keys: [...keys, changing(keys), 'trees'], patience: 'long' };
}

/** Returns the lane for operations on a file of `lane` that wait for an inode lock, which others may hold. */
export function locking(lane: Lane): Lane {
  if (lane === QUICK) return LOCKING;
  if (lane.mounts.length > 0) return lane;
  return { mounts: [], keys: [...lane.keys, changing(lane.keys), 'locks'], patience: 'long' };
}

/**
 * Returns the lane for calls on a file that was opened in `lane` with these flags of open(2). Calls on an open file
 * wait for no lock of a directory.
 */
export function openedLane(lane: Lane, flags: number): Lane {
  const isUnnamed = (flags & O_TMPFILE) === O_TMPFILE;
  const isDirectory = (flags & (O_PATH | constants.O_DIRECTORY)) !== 0 && !isUnnamed;
  if (isDirectory || lane.mounts.length > 0) return lane;
  return lane.keys.includes('locks') ? LOCKING : QUICK;
}

/** Returns the lane for jobs that use files of two lanes. */
export function both(left: Lane, right: Lane): Lane {
  if (left.mounts.length > 0 && right.mounts.length === 0) return left;
  if (right.mounts.length > 0 && left.mounts.length === 0) return right;
  return {
    mounts: [...new Set([...left.mounts, ...right.mounts])],
    keys: [...new Set([...left.keys, ...right.keys])],
    patience: left.keys.length > 0 ? left.patience : right.patience,
  };
}

export function entering({ mounts, keys }: Lane, mount: number): Lane {
  const own = [`mount ${mount}`, isFuseMount(mount) ? 'fuse' : 'network'];
  // A job on a mount must not keep others from the lanes of local files.
  const before = mounts.length > 0 ? keys : [];
  return { mounts: [...mounts, mount], keys: [...new Set([...before, ...own])], patience: 'short' };
}

/**
 * Returns how many jobs may run at a time for a key, in a pool with this many threads. Shares are small, because a job
 * keeps its thread after its caller has given up.
 */
export function limitOf(key: string, threads: number): number {
  const share = Math.max(1, Math.floor((threads * 3) / 16));
  if (key.startsWith('mount ')) return Math.min(2, share);
  if (key.startsWith('changes ')) return Math.max(1, share - 1);
  return key.startsWith('below ') ? share * 2 : share;
}

/** Returns a key for the directory, and one for its tree, which is its first two parts, such as /home/user. */
function keysOf(path: string): readonly [string, string] {
  const directory = path.slice(0, Math.max(path.lastIndexOf('/'), 1));
  const second = directory.indexOf('/', 1);
  const third = second < 0 ? -1 : directory.indexOf('/', second + 1);
  return [`in ${directory}`, `below ${third < 0 ? directory : directory.slice(0, third)}`];
}

function changing([directory]: readonly string[]): string {
  return `changes ${directory}`;
}
