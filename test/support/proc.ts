import { readdirSync, readFileSync, readlinkSync } from 'node:fs';

/** What a process has open, each as its link says: `pipe:[4711]`, `/dev/null`. Source: proc_pid_fd(5). */
export function openFiles(pid: number): string[] {
  return readdirSync(`/proc/${pid}/fd`).flatMap((descriptor) => {
    try {
      return readlinkSync(`/proc/${pid}/fd/${descriptor}`);
    } catch {
      return []; // Closed meanwhile.
    }
  });
}

/** The TCP sockets that a process listens on, as `address:port` in hexadecimal. Source: proc_net(5), state 0A. */
export function listeningSockets(pid: number): string[] {
  const own = new Set(openFiles(pid));
  return ['tcp', 'tcp6'].flatMap((table) => {
    const rows = readFileSync(`/proc/${pid}/net/${table}`, 'utf8').trim().split('\n').slice(1);
    const fields = rows.map((row) => row.trim().split(/\s+/));
    const listening = fields.filter(([, , , state, , , , , , inode]) => {
      return state === '0A' && own.has(`socket:[${inode}]`);
    });
    return listening.map(([, address = '']) => address);
  });
}

/** The children of a process, zombies included, whichever of its threads has made them. Source: proc_pid_task(5). */
export function childrenOf(pid: number): number[] {
  return readdirSync(`/proc/${pid}/task`).flatMap((thread) => {
    const children = readFileSync(`/proc/${pid}/task/${thread}/children`, 'utf8');
    return children.split(/\s+/).filter(Boolean).map(Number);
  });
}
