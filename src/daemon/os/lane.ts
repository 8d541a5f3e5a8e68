import { constants } from 'node:fs';
import { isFuseMount } from './mounts.ts';
import { O_PATH, O_TMPFILE } from './open-flags.ts';

/** Where a job of the thread pool waits for its turn; see `Lanes`. */
export interface Lane {
  /** The ids of the mounts that it enters although their servers may not answer. */
  readonly mounts: readonly number[];
  /** What it is counted under. */
  readonly keys: readonly string[];
  /** How long its caller waits; `long` is for what may take its time on a slow disk. */
  readonly patience: Patience;
}

export type Patience = 'short' | 'long' | 'endless';

/** Of jobs on open files of local disks: nobody can hold them up. */
export const QUICK: Lane = { mounts: [], keys: [], patience: 'endless' };
/** Of jobs that wait for the lock of an open file, which another process may hold for seconds: write(2), ftruncate(2). */
const LOCKING: Lane = { mounts: [], keys: ['locks'], patience: 'endless' };

/**
 * Of jobs that look up or make the last name of an absolute path. They wait for the lock of a directory, which any
 * process that may read it can hold for as long as it likes: getdents64(2) holds it while it writes to memory that a
 * FUSE server must fill.
 */
export function laneOf(path: string): Lane {
  return { mounts: [], keys: keysOf(path), patience: 'short' };
}

/** Of a job that removes the tree at an absolute path. */
export function removing(path: string): Lane {
  const keys = keysOf(path);
  return { mounts: [], keys: [...keys, changing(keys), 'trees'], patience: 'long' };
}

/** The lane for operations on a file of `lane` that wait for the lock of an inode which others may hold. */
export function locking(lane: Lane): Lane {
  if (lane === QUICK) return LOCKING;
  if (lane.mounts.length > 0) return lane;
  return { mounts: [], keys: [...lane.keys, changing(lane.keys), 'locks'], patience: 'long' };
}

/** The lane for calls on what was opened in `lane` with these flags of open(2): in a file, no directory's lock matters. */
export function openedLane(lane: Lane, flags: number): Lane {
  const isUnnamed = (flags & O_TMPFILE) === O_TMPFILE;
  const isDirectory = (flags & (O_PATH | constants.O_DIRECTORY)) !== 0 && !isUnnamed;
  if (isDirectory || lane.mounts.length > 0) return lane;
  return lane.keys.includes('locks') ? LOCKING : QUICK;
}

/** The lane for jobs that use files of both. */
export function both(left: Lane, right: Lane): Lane {
  if (left.mounts.length > 0 && right.mounts.length === 0) return left;
  if (right.mounts.length > 0 && left.mounts.length === 0) return right;
  return {
    mounts: [...new Set([...left.mounts, ...right.mounts])],
    keys: [...new Set([...left.keys, ...right.keys])],
    patience: left.keys.length > 0 ? left.patience : right.patience,
  };
}

/** `lane` with one more mount. */
export function entering({ mounts, keys }: Lane, mount: number): Lane {
  const own = [`mount ${mount}`, isFuseMount(mount) ? 'fuse' : 'network'];
  // A job on a mount must not keep others from the lanes of local files.
  const before = mounts.length > 0 ? keys : [];
  return { mounts: [...mounts, mount], keys: [...new Set([...before, ...own])], patience: 'short' };
}

/**
 * The most jobs at once that are counted under a key, of a pool with this many threads. Shares are small, because a job
 * keeps its thread when its caller has given up.
 */
export function mostOf(key: string, threads: number): number {
  const share = Math.max(1, Math.floor((threads * 3) / 16));
  // By the first letter of mount, changes, below, because this is asked for every job.
  switch (key[0]) {
    case 'm':
      return Math.min(2, share);
    case 'c':
      return Math.max(1, share - 1);
    case 'b':
      return share * 2;
    default:
      return share;
  }
}

/** The directory, and its tree: its first two parts, such as /home/user. */
function keysOf(path: string): readonly [string, string] {
  const directory = path.slice(0, Math.max(path.lastIndexOf('/'), 1));
  const second = directory.indexOf('/', 1);
  const third = second < 0 ? -1 : directory.indexOf('/', second + 1);
  return [`in ${directory}`, `below ${third < 0 ? directory : directory.slice(0, third)}`];
}

function changing([directory]: readonly string[]): string {
  return `changes ${directory}`;
}
