import { opendir, readdir, readFile, readlink } from 'node:fs/promises';
import { isSystemError } from '../../../base/errors.ts';

/** A process that has a socket open. */
export interface SocketHolder {
  readonly pid: number;
  /** The first 15 bytes of the name of its program, or what it calls itself. */
  readonly command: string;
}

/** Descriptors that are listed with one system call. */
const LISTED = 256;
/** Of one process, and of all: a process may have a million. */
const MOST_OF_ONE = 4096;
const MOST_OF_ALL = 64 * 1024;

/**
 * Returns the process with the lowest pid that has each of the sockets, by inode. It uses one thread of the pool at a time, and
 * may never end, because a process can keep a directory of procfs locked. Source: proc_pid_fd(5), proc_pid_comm(5).
 */
export async function holdersOf(
  inodes: ReadonlySet<number>,
  proc = '/proc',
): Promise<Map<number, SocketHolder>> {
  const found = new Map<number, SocketHolder>();
  if (inodes.size === 0) return found;
  const pids = (await readdir(proc)).map(Number).filter(Boolean);
  pids.sort((a, b) => a - b);
  let checked = 0;
  for (const pid of pids) {
    for await (const inode of socketsOf(`${proc}/${pid}/fd`)) {
      if (inodes.has(inode) && !found.has(inode))
        found.set(inode, { pid, command: await nameIn(`${proc}/${pid}/comm`) });
      if (found.size === inodes.size || ++checked >= MOST_OF_ALL) return found;
    }
  }
  return found;
}

/** The inodes of a process' sockets; 0 for other descriptors. Ends early when the process does. */
async function* socketsOf(path: string): AsyncGenerator<number> {
  try {
    let count = 0;
    for await (const { name } of await opendir(path, { bufferSize: LISTED })) {
      if (count++ >= MOST_OF_ONE) return;
      yield Number(/^socket:\[(\d+)\]$/.exec(await readlink(`${path}/${name}`))?.[1] ?? 0);
    }
  } catch (error) {
    if (!isSystemError(error)) throw error;
  }
}

async function nameIn(path: string): Promise<string> {
  try {
    return (await readFile(path, 'utf8')).trimEnd();
  } catch (error) {
    if (isSystemError(error)) return '';
    throw error;
  }
}
