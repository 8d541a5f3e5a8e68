import { readFileSync } from 'node:fs';
import { isSystemError } from '../../../base/errors.ts';
import { holdersOf } from './socket-holders.ts';

/** Matches a line `sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode`. */
const SOCKET = /^\s*\d+: [\dA-F]+:([\dA-F]{4}) \S+ \S+ \S+ \S+ \S+ +(\d+) +\d+ (\d+) /gm;
/** The most characters of a command that are shown, because it is a stranger's text. */
const MOST_TEXT = 100;

/**
 * Describes who has a TCP port, such as `user 1000, process 7 'python3 -m http.server'`; returns null when that cannot be
 * found. Sources: Documentation/networking/proc_net_tcp.rst, proc_pid_fd(5).
 */
export async function holderOf(port: number, proc = '/proc'): Promise<string | null> {
  for (const table of ['net/tcp', 'net/tcp6']) {
    for (const [, local = '', uid, inode = ''] of textOf(`${proc}/${table}`).matchAll(SOCKET)) {
      if (Number.parseInt(local, 16) !== port) continue;
      const pid = (await holdersOf(new Set([Number(inode)]), proc)).get(Number(inode))?.pid;
      return `user ${uid}${pid === undefined ? '' : `, process ${pid} '${commandOf(pid, proc)}'`}`;
    }
  }
  return null;
}

function commandOf(pid: number, proc: string): string {
  const words = textOf(`${proc}/${pid}/cmdline`).replaceAll('\0', ' ').trim();
  return words.slice(0, MOST_TEXT).replaceAll(/[^\x20-\x7e]/g, '?');
}

/** Returns an empty text after a system error, because a process may have ended meanwhile, and a kernel may have no IPv6. */
function textOf(path: string): string {
  try {
    return readFileSync(path, 'latin1');
  } catch (error) {
    if (isSystemError(error)) return '';
    throw error;
  }
}
