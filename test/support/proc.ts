import { readdirSync, readFileSync, readlinkSync, writeFileSync } from 'node:fs';

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

/** Whether a process runs; a zombie that its parent or init has yet to reap does not. Source: proc_pid_stat(5). */
export function runs(pid: number): boolean {
  try {
    return !/\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return false;
  }
}

/** The resident memory of a process and the most that it has been, in bytes. Source: proc_pid_status(5). */
export function memoryOf(pid: number): { readonly now: number; readonly peak: number } {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const field = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(status)?.[1]) * 1024;
  return { now: field('VmRSS'), peak: field('VmHWM') };
}

/** The bytes by which the peak of a process, while `work` goes on, exceeds what it had before. */
export async function growthOf(pid: number, work: () => Promise<unknown>): Promise<number> {
  const { now } = memoryOf(pid);
  // The peak starts anew: proc_pid_clear_refs(5).
  writeFileSync(`/proc/${pid}/clear_refs`, '5');
  await work();
  return memoryOf(pid).peak - now;
}
