import { readFileSync } from 'node:fs';
import { isSystemError } from '../../../base/errors.ts';
import { holdersOf } from './socket-holders.ts';

/** Matches a line `sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode`. */
const SOCKET = /^\s*\d+: [\dA-F]+:([\dA-F]{4}) \S+ \S+ \S+ \S+ \S+ +(\d+) +\d+ (\d+) /gm;

/**
 * Describes who has a TCP port, such as `user 1000, process 7 'python3'`; returns null when that cannot be found. It does not
 * read the arguments, because they are in the process' memory, which may never come. Sources:
 * Documentation/networking/proc_net_tcp.rst, proc_pid_fd(5).
 */
export async function holderOf(port: number, proc = '/proc'): Promise<string | null> {
  for (const table of ['net/tcp', 'net/tcp6']) {
    for (const [, local = '', uid, inode = ''] of textOf(`${proc}/${table}`).matchAll(SOCKET)) {
      if (Number.parseInt(local, 16) !== port) continue;
      const holder = (await holdersOf(new Set([Number(inode)]), proc)).get(Number(inode));
      const command = holder?.command.replaceAll(/[^\x20-\x7e]/g, '?');
      return `user ${uid}${holder ? `, process ${holder.pid} '${command}'` : ''}`;
    }
  }
  return null;
}

/** Returns an empty text after a system error, because a kernel may have no IPv6. */
function textOf(path: string): string {
  try {
    return readFileSync(path, 'latin1');
  } catch (error) {
    if (isSystemError(error)) return '';
    throw error;
  }
}
