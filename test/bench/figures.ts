import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';

/** The speed of a shared machine varies: every figure is a median, every result a ratio within one run. */
export function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[values.length >> 1] ?? Number.NaN;
}

/** Returns the value that this part of all values does not exceed, such as 0.99; with few values it is the largest one. */
export function percentile(values: readonly number[], part: number): number {
  return values.toSorted((a, b) => a - b)[Math.ceil(values.length * part) - 1] ?? Number.NaN;
}

/** CPU time of a process so far, of all its threads, in milliseconds. Source: proc_pid_schedstat(5). */
export function cpuMs(pid: number): number {
  const threads = readdirSync(`/proc/${pid}/task`);
  const nanoseconds = threads.map((thread) =>
    Number(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').split(' ')[0]),
  );
  return nanoseconds.reduce((sum, value) => sum + value, 0) / 1e6;
}

/** Resident memory of a process, in MiB. */
export function residentMib(pid: number): number {
  const kib = /^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
  return Number(kib) / 1024;
}

/** Runs `work`, which must end with everything done, and returns the CPU that `pid` has used for it. */
export async function cpuOf(pid: number, work: () => Promise<unknown>): Promise<number> {
  const before = cpuMs(pid);
  await work();
  // The work of the process after the last byte counts, too.
  await delay(20);
  return cpuMs(pid) - before;
}

/** The samples of each contestant, run in turns so that changes of the machine's speed affect all. `warmUp`: rounds before. */
export async function samplesOf<Name extends string>(
  contestants: Readonly<Record<Name, () => Promise<number>>>,
  rounds: number,
  warmUp = 1,
): Promise<Record<Name, number[]>> {
  const names = Object.keys(contestants) as Name[];
  const samples = Object.fromEntries(names.map((name) => [name, []])) as unknown as Record<Name, number[]>;
  for (let round = 1 - warmUp; round <= rounds; round++) {
    for (const name of names) {
      const value = await contestants[name]();
      if (round > 0) samples[name].push(value);
    }
  }
  return samples;
}

/** The median of each contestant over `rounds`, run in turns. */
export async function takeTurns<Name extends string>(
  contestants: Readonly<Record<Name, () => Promise<number>>>,
  rounds: number,
): Promise<Record<Name, number>> {
  const samples = Object.entries<number[]>(await samplesOf(contestants, rounds));
  return Object.fromEntries(samples.map(([name, values]) => [name, median(values)])) as Record<Name, number>;
}

/** A number for a table: three significant digits. */
export function show(value: number): string {
  return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

/** A Markdown table. */
export function printTable(title: string, rows: readonly Readonly<Record<string, string>>[]): void {
  const columns = Object.keys(rows[0] ?? {});
  const widths = columns.map((name) => Math.max(name.length, ...rows.map((row) => row[name]?.length ?? 0)));
  const line = (cells: readonly string[]) =>
    `| ${cells.map((cell, index) => cell.padEnd(widths[index] ?? 0)).join(' | ')} |`;
  console.log(`\n${title}\n`);
  console.log(line(columns));
  console.log(line(widths.map((width) => '-'.repeat(width))));
  for (const row of rows) console.log(line(columns.map((name) => row[name] ?? '')));
}
