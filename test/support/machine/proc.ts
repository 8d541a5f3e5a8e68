import { readdirSync, readFileSync, readlinkSync, writeFileSync } from 'node:fs';

/** The open files of a process, as their links: `pipe:[4711]`, `/dev/null`. Source: proc_pid_fd(5). */
export function openFiles(pid: number): string[] {
  return readdirSync(`/proc/${pid}/fd`).flatMap((descriptor) => {
    try {
      return readlinkSync(`/proc/${pid}/fd/${descriptor}`);
    } catch {
      return []; // Already closed.
    }
  });
}

/** The TCP sockets that a process listens on, as `address:port` in hexadecimal. Source: proc_net(5). */
export function listeningSockets(pid: number): string[] {
  const own = new Set(openFiles(pid));
  return ['tcp', 'tcp6'].flatMap((table) => {
    const rows = readFileSync(`/proc/${pid}/net/${table}`, 'utf8').trim().split('\n').slice(1);
    const fields = rows.map((row) => row.trim().split(/\s+/));
    const listening = fields.filter(
      ([, , , state, , , , , , inode]) => state === '0A' && own.has(`socket:[${inode}]`),
    );
    return listening.map(([, address = '']) => address);
  });
}

/**
 * The children of a process, including zombies, of all its threads, except the daemon's starter. Source:
 * proc_pid_task(5).
 */
export function childrenOf(pid: number): number[] {
  return allChildrenOf(pid).filter((child) => nameOf(child) !== STARTER);
}

/** The daemon's starter; undefined before the first start. */
export function starterOf(pid: number): number | undefined {
  return allChildrenOf(pid).find((child) => nameOf(child) === STARTER);
}

const STARTER = 'envd-start';

function allChildrenOf(pid: number): number[] {
  return readdirSync(`/proc/${pid}/task`).flatMap((thread) => {
    try {
      const pids = readFileSync(`/proc/${pid}/task/${thread}/children`, 'utf8');
      return pids.split(/\s+/).filter(Boolean).map(Number);
    } catch {
      return []; // The thread has ended.
    }
  });
}

/** The name of a process; empty when it has gone. Source: proc_pid_comm(5). */
function nameOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/comm`, 'utf8').trim();
  } catch {
    return '';
  }
}

/** Whether a process runs; a zombie does not. Source: proc_pid_stat(5). */
export function runs(pid: number): boolean {
  try {
    return !/\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return false;
  }
}

/** Whether the first thread of a process waits for something; that of Node has its event loop. Source: proc_pid_stat(5). */
export function isAsleep(pid: number): boolean {
  return /\) S /.test(readFileSync(`/proc/${pid}/task/${pid}/stat`, 'utf8'));
}

/** The current and the peak resident memory of a process, in bytes. Source: proc_pid_status(5). */
export function memoryOf(pid: number): { readonly now: number; readonly peak: number } {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const field = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(status)?.[1]) * 1024;
  return { now: field('VmRSS'), peak: field('VmHWM') };
}

/** The memory of a process that it shares with no file and nobody else, in bytes. */
export function anonymousMemoryOf(pid: number): number {
  return Number(/^RssAnon:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) * 1024;
}

/** Linux tells CPU time in hundredths of a second. */
const MS_OF_A_TICK = 10;

/** The CPU time of a process so far, in milliseconds. Source: proc_pid_stat(5). */
export function cpuMsOf(pid: number): number {
  return cpuMsIn(`/proc/${pid}/stat`);
}

/** The CPU time of the thread of a process that has its event loop, in milliseconds. */
export function loopCpuMsOf(pid: number): number {
  return cpuMsIn(`/proc/${pid}/task/${pid}/stat`);
}

/**
 * The time that the thread of the caller has run, or has waited for a processor, so far in milliseconds; 0 where the kernel does not
 * tell. Source: Documentation/scheduler/sched-stats.rst, "/proc/<pid>/schedstat".
 */
export function awakeMs(): number {
  try {
    const [ran = 0, waited = 0] = readFileSync('/proc/thread-self/schedstat', 'utf8').split(' ').map(Number);
    return (ran + waited) / 1e6;
  } catch {
    return 0;
  }
}

function cpuMsIn(path: string): number {
  const fields = readFileSync(path, 'utf8').split(') ').at(-1)?.split(' ') ?? [];
  return (Number(fields[11]) + Number(fields[12])) * MS_OF_A_TICK;
}

/** By how much the peak memory of a process during `work` exceeds its memory before, in bytes. */
export async function growthOf(pid: number, work: () => Promise<unknown>): Promise<number> {
  const { now } = memoryOf(pid);
  // Resets the peak: proc_pid_clear_refs(5).
  writeFileSync(`/proc/${pid}/clear_refs`, '5');
  await work();
  return memoryOf(pid).peak - now;
}

/** How many threads of a process sleep in a function of the kernel; proc_pid_wchan(5). */
export function threadsIn(pid: number, where: RegExp): number {
  return readdirSync(`/proc/${pid}/task`).filter((id) => {
    try {
      return where.test(readFileSync(`/proc/${pid}/task/${id}/wchan`, 'utf8'));
    } catch {
      return false;
    }
  }).length;
}

/** The open files of a process but its sockets, without the numbers in their names. */
export function kindsOfOpenFiles(pid: number): string[] {
  const files = openFiles(pid).map((file) => file.replace(/\d+/g, 'N'));
  return files.filter((file) => !file.startsWith('socket')).sort();
}
