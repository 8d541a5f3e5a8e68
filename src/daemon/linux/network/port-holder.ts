import { readFileSync } from 'node:fs';
import { within } from '../../../base/abort.ts';
import { isSystemError } from '../../../base/errors.ts';
import { holdersOf, type SocketHolder } from './socket-holders.ts';

/** The processes of strangers may take this long, in milliseconds, because each can keep its directory of procfs locked. */
const PROCESSES_MS = 1000;
/** Matches a line `sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode`. */
const SOCKET = /^\s*\d+: [\dA-F]+:([\dA-F]{4}) \S+ \S+ \S+ \S+ \S+ +(\d+) +\d+ (\d+) /gm;

/**
 * Describes who has a TCP port, such as `user 1000, process 7 'python3'`; returns null when that cannot be found. It does not
 * read the arguments, because they are in the process' memory, which may never come. Sources:
 * Documentation/networking/proc_net_tcp.rst, proc_pid_fd(5).
 */
export async function holderOf(port: number, proc = '/proc'): Promise<string | null> {
  const text = ['net/tcp', 'net/tcp6'].map((table) => textOf(`${proc}/${table}`)).join('');
  const sockets = Array.from(text.matchAll(SOCKET), ([, local = '', uid, inode]) => {
    return { port: Number.parseInt(local, 16), uid, inode: Number(inode) };
  }).filter((socket) => socket.port === port && socket.inode !== 0);
  const search = holdersOf(new Set(sockets.map(({ inode }) => inode)), proc);
  const holders = await within(PROCESSES_MS, search, () => new Map<number, SocketHolder>());
  const own = textOf(`${proc}/self/comm`).trimEnd();
  // Another daemon that forwards the port does so for somebody who listens on it at localhost.
  const isForward = ({ inode }: { inode: number }) => holders.get(inode)?.command === own;
  const found = sockets.find((socket) => !isForward(socket)) ?? sockets[0];
  if (!found) return null;
  const holder = holders.get(found.inode);
  const command = holder?.command.replaceAll(/[^\x20-\x7e]/g, '?');
  return `user ${found.uid}${holder ? `, process ${holder.pid} '${command}'` : ''}`;
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
