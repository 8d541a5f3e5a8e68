import { opendirSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { isSystemError } from '../../../base/errors.ts';

/** A process that has a socket open. */
export interface SocketHolder {
  readonly pid: number;
  /** The first 15 bytes of the name of its program, or what it calls itself. */
  readonly command: string;
}

/** Descriptors that are looked at in one turn of the event loop; each takes some 3 µs. */
const TURN = 256;
/** Of one process, and of all: a process may have a million. */
const MOST_OF_ONE = 4096;
const MOST_LOOKS = 64 * 1024;

/** Returns the process with the lowest pid that has each of the sockets, by inode. Source: proc_pid_fd(5), proc_pid_comm(5). */
export async function holdersOf(
  inodes: ReadonlySet<number>,
  proc = '/proc',
): Promise<Map<number, SocketHolder>> {
  const found = new Map<number, SocketHolder>();
  if (inodes.size === 0) return found;
  const pids = readdirSync(proc).map(Number).filter(Boolean);
  pids.sort((a, b) => a - b);
  let looks = 0;
  for (const pid of pids) {
    for (const inode of socketsOf(`${proc}/${pid}/fd`)) {
      if (inodes.has(inode) && !found.has(inode))
        found.set(inode, { pid, command: nameIn(`${proc}/${pid}/comm`) });
      if (found.size === inodes.size || ++looks >= MOST_LOOKS) return found;
      if (looks % TURN === 0) await nextTurn();
    }
  }
  return found;
}

/** The inodes of a process' sockets; 0 for other descriptors. Ends early when the process does. */
function* socketsOf(path: string): Generator<number> {
  try {
    using directory = opendirSync(path, { bufferSize: TURN });
    for (let count = 0; count < MOST_OF_ONE; count++) {
      const entry = directory.readSync();
      if (entry === null) return;
      yield Number(/^socket:\[(\d+)\]$/.exec(readlinkSync(`${path}/${entry.name}`))?.[1] ?? 0);
    }
  } catch (error) {
    if (!isSystemError(error)) throw error;
  }
}

function nameIn(path: string): string {
  try {
    return readFileSync(path, 'utf8').trimEnd();
  } catch (error) {
    if (isSystemError(error)) return '';
    throw error;
  }
}
