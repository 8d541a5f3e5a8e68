import { readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { isSystemError } from '../../../base/errors.ts';
import { Cgroup } from '../../linux/cgroups/cgroup2.ts';
import type { StrangerFiles } from './stranger-files.ts';

/** The members of ProcessUsage. A member is undefined if the kernel does not report it. */
export interface UsageFigures {
  readonly userMicros: bigint;
  readonly systemMicros: bigint;
  readonly memoryBytes?: bigint | undefined;
  readonly peakMemoryBytes?: bigint | undefined;
  readonly tasks?: number | undefined;
  readonly readBytes?: bigint | undefined;
  readonly writtenBytes?: bigint | undefined;
}

/** A process as procfs describes it. */
export interface ProcEntry {
  readonly pid: number;
  /** The first 15 bytes of the name of its program, or the name that it gave itself. */
  readonly name: string;
  readonly state: string;
  readonly parent: number;
  readonly uid: number;
  readonly isKernelThread: boolean;
  /** When it began, in milliseconds since the boot. */
  readonly startedMs: number;
  /** The figures without I/O. */
  readonly figures: UsageFigures;
}

/**
 * CPU times in procfs are in ticks of this length, in microseconds, on each architecture. Source: USER_HZ,
 * asm-generic/param.h.
 */
const TICK_MICROS = 10_000n;
/** This flag marks threads of the kernel. Source: PF_KTHREAD, linux/sched.h. */
const KERNEL_THREAD = 0x0020_0000;
/** Larger trees have no figures of I/O, because each process is a file to read. */
const MOST_SUMMED = 64;

/** Returns a process, or null if it is gone. Source: proc_pid_stat(5), proc_pid_status(5). */
export async function procEntry(pid: number): Promise<ProcEntry | null> {
  const stat = await readIfThere(`/proc/${pid}/stat`);
  const status = stat && (await readIfThere(`/proc/${pid}/status`));
  // The last parenthesis ends the name, because the name may contain any characters.
  const end = stat.lastIndexOf(')');
  if (end < 0 || status === '') return null;
  const fields = stat.slice(end + 2).split(' ');
  const field = (number: number) => fields[number - 3] ?? '0';
  return {
    pid,
    name: stat.slice(stat.indexOf('(') + 1, end),
    state: field(3),
    parent: Number(field(4)),
    uid: Number(/^Uid:\s+\d+\s+(\d+)/m.exec(status)?.[1] ?? 0),
    isKernelThread: (Number(field(9)) & KERNEL_THREAD) !== 0,
    startedMs: Number((BigInt(field(22)) * TICK_MICROS) / 1000n),
    figures: {
      userMicros: BigInt(field(14)) * TICK_MICROS,
      systemMicros: BigInt(field(15)) * TICK_MICROS,
      memoryBytes: kibibytes(status, 'VmRSS'),
      peakMemoryBytes: kibibytes(status, 'VmHWM'),
      tasks: Number(field(20)),
    },
  };
}

/** Returns the figures of a process, with its I/O. */
export async function ownFigures({ pid, figures }: ProcEntry, files: StrangerFiles): Promise<UsageFigures> {
  return { ...figures, ...(await ioOf([pid], files)) };
}

/** Returns the figures of all processes in a cgroup together. */
export async function treeFigures(path: string, files: StrangerFiles): Promise<UsageFigures> {
  const cgroup = new Cgroup(path);
  const cpu = cgroup.cpuTime();
  const pids = cgroup.processes();
  return {
    userMicros: BigInt(cpu?.userMicros ?? 0),
    systemMicros: BigInt(cpu?.systemMicros ?? 0),
    memoryBytes: orUndefined(cgroup.figure('memory.current', /^(\d+)$/m)),
    peakMemoryBytes: orUndefined(cgroup.memoryPeak()),
    tasks: readIfPresent(`${path}/cgroup.threads`).split('\n').length - 1,
    ...(pids.length <= MOST_SUMMED && (await ioOf(pids, files))),
  };
}

/** Returns the sum of the I/O, or nothing if the kernel does not report a part of it. Source: proc_pid_io(5). */
async function ioOf(
  pids: readonly number[],
  files: StrangerFiles,
): Promise<Pick<UsageFigures, 'readBytes' | 'writtenBytes'>> {
  let [readBytes, writtenBytes] = [0n, 0n];
  for (const pid of pids) {
    const text = (await files.read(pid, 'io'))?.toString('latin1') ?? '';
    const [read, written] = [/^read_bytes: (\d+)$/m.exec(text)?.[1], /^write_bytes: (\d+)$/m.exec(text)?.[1]];
    if (read === undefined || written === undefined) return {};
    readBytes += BigInt(read);
    writtenBytes += BigInt(written);
  }
  return { readBytes, writtenBytes };
}

/** Returns bytes, or undefined for a thread of the kernel and for a process that has ended. */
function kibibytes(status: string, name: string): bigint | undefined {
  const digits = new RegExp(`^${name}:\\s+(\\d+) kB$`, 'm').exec(status)?.[1];
  return digits === undefined ? undefined : BigInt(digits) * 1024n;
}

function orUndefined(figure: number | null): bigint | undefined {
  return figure === null ? undefined : BigInt(figure);
}

/** Returns the text, or '' if the process is gone. */
function readIfThere(path: string): Promise<string> {
  return readFile(path, 'utf8').catch(emptyIfGone);
}

/** Returns the text, or '' if the cgroup is gone. */
function readIfPresent(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    return emptyIfGone(error);
  }
}

function emptyIfGone(error: unknown): '' {
  if (isSystemError(error, 'ENOENT', 'ESRCH', 'ENODEV', 'EACCES', 'EOPNOTSUPP')) return '';
  throw error;
}
