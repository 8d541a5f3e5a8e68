import { readFile, statfs } from 'node:fs/promises';

/** The resources that the guest uses. Sizes are in bytes. */
export interface Metrics {
  /** The Unix time in seconds. */
  readonly ts: number;
  readonly cpu_count: number;
  /** The usage of all CPUs together since the previous call, from 0 to 100, with two decimals. */
  readonly cpu_used_pct: number;
  readonly mem_total: number;
  /** The difference of MemTotal and MemAvailable. */
  readonly mem_used: number;
  /** The page cache and reclaimable slabs, which free(1) counts as cache, too. */
  readonly mem_cache: number;
  readonly mem_total_mib: number;
  readonly mem_used_mib: number;
  /** The size of `/` without what is available to unprivileged users. */
  readonly disk_used: number;
  readonly disk_total: number;
}

interface CpuTimes {
  readonly count: number;
  readonly total: number;
  readonly busy: number;
}

const MIB = 1024 * 1024;

export class MetricsReader {
  readonly #proc: string;
  #previous: CpuTimes = { count: 0, total: 0, busy: 0 };

  /** `proc` is where proc(5) is mounted. */
  constructor(proc = '/proc') {
    this.#proc = proc;
  }

  /** Reads the metrics. The first call returns the CPU usage since boot. */
  async read(): Promise<Metrics> {
    const [stat, meminfo, disk] = await Promise.all([
      readFile(`${this.#proc}/stat`, 'utf8'),
      readFile(`${this.#proc}/meminfo`, 'utf8'),
      statfs('/'),
    ]);
    const cpu = parseCpuTimes(stat);
    const memory = parseMemory(meminfo);
    const usedPercent = percentBetween(this.#previous, cpu);
    this.#previous = cpu;
    return {
      ts: Math.floor(Date.now() / 1000),
      cpu_count: cpu.count,
      cpu_used_pct: usedPercent,
      mem_total: memory.total,
      mem_used: memory.used,
      mem_cache: memory.cache,
      mem_total_mib: Math.floor(memory.total / MIB),
      mem_used_mib: Math.floor(memory.used / MIB),
      disk_used: (disk.blocks - disk.bavail) * disk.frsize,
      disk_total: disk.blocks * disk.frsize,
    };
  }
}

/** Parses proc_stat(5): `cpu  user nice system idle iowait irq softirq steal guest guest_nice`, in clock ticks. */
function parseCpuTimes(text: string): CpuTimes {
  const lines = text.split('\n').filter((line) => line.startsWith('cpu'));
  // The last two, guest and guest_nice, are included in user and nice already.
  const ticks = (lines[0] ?? '').trim().split(/\s+/).slice(1, 9).map(Number);
  const total = ticks.reduce((sum, value) => sum + value, 0);
  const [, , , idle = 0, iowait = 0] = ticks;
  return { count: lines.length - 1, total, busy: total - idle - iowait };
}

function percentBetween(before: CpuTimes, after: CpuTimes): number {
  const total = after.total - before.total;
  // The times of idle and iowait may decrease: proc_stat(5).
  const share = total > 0 ? (after.busy - before.busy) / total : 0;
  return Math.round(Math.min(Math.max(share, 0), 1) * 10_000) / 100;
}

/** Parses proc_meminfo(5): `MemTotal:       16384 kB`. */
function parseMemory(text: string): { total: number; used: number; cache: number } {
  const fields = new Map<string, number>();
  for (const [, name = '', kib] of text.matchAll(/^(\w+):\s+(\d+) kB$/gm))
    fields.set(name, Number(kib) * 1024);
  const field = (name: string) => fields.get(name) ?? 0;
  const total = field('MemTotal');
  return { total, used: total - field('MemAvailable'), cache: field('Cached') + field('SReclaimable') };
}
