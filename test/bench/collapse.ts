/**
 * The share of the heap that lies in whole 2 MiB windows, with and without the reservation of the address space,
 * side by side: as it is after start and load, after a collection, and what a collapse then makes of it.
 * Run: `npm run bench -- collapse`
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, readFileSync, readSync } from 'node:fs';
import { native } from '../../src/daemon/linux/system/native.ts';
import { collectGarbage } from '../../src/daemon/linux/system/self.ts';

const PAGE = 4096;
const WINDOW = 2 * 1024 * 1024;
const RUNS = 5;
const LOADS = { idle: 0, 'kept 40 MB': 300_000, 'kept 130 MB': 1_000_000 };

interface Setting {
  readonly reserve: boolean;
  readonly execArgv: string[];
}

const SMALL_YOUNG_GENERATION = ['--expose-gc', '--max-semi-space-size=2'];
const SETTINGS: readonly Setting[] = [
  { reserve: false, execArgv: ['--expose-gc'] },
  { reserve: true, execArgv: ['--expose-gc'] },
  { reserve: false, execArgv: SMALL_YOUNG_GENERATION },
  { reserve: true, execArgv: SMALL_YOUNG_GENERATION },
];

interface Extent {
  readonly mib: number;
  /** The part of it in whole windows, 0 to 1. */
  readonly share: number;
}

interface Result {
  readonly loaded: Extent;
  readonly collected: Extent;
  readonly collapsed: number;
  readonly collapseMs: number;
}

/** Present pages of all private anonymous writable memory, and how many of them lie in whole windows. */
function measure(): Extent {
  const pagemap = openSync('/proc/self/pagemap', 'r');
  let present = 0;
  let inWindows = 0;
  for (const [, from = '', to = ''] of readFileSync('/proc/self/maps', 'utf8').matchAll(
    /^([0-9a-f]+)-([0-9a-f]+) rw-p \S+ 00:00 0 *(?:\[heap\]|\[anon:.*)?$/gm,
  )) {
    const [start, end] = [Number.parseInt(from, 16), Number.parseInt(to, 16)];
    const entries = Buffer.alloc(((end - start) / PAGE) * 8);
    readSync(pagemap, entries, 0, entries.length, (start / PAGE) * 8);
    for (let address = start; address < end; address += PAGE) {
      // Bit 63 of an entry: present.
      if ((entries.readUInt8(((address - start) / PAGE) * 8 + 7) & 0x80) === 0) continue;
      const window = address - (address % WINDOW);
      present++;
      if (window >= start && window + WINDOW <= end) inWindows++;
    }
  }
  closeSync(pagemap);
  return { mib: (present * PAGE) / 1024 ** 2, share: inWindows / present };
}

/** In a process of its own: the daemon's libraries, and as many lasting as temporary objects. */
async function run(reserve: boolean, objects: number): Promise<Result> {
  if (reserve) native.reserveAddressSpace();
  await Promise.all([import('fastify'), import('pino'), import('@connectrpc/connect-node')]);
  const make = () =>
    Array.from({ length: objects }, (_, index) => ({ index, text: `object ${index}`, pair: [index] }));
  const kept = make();
  make();
  const loaded = measure();
  collectGarbage('regular');
  native.trimHeap();
  const collected = measure();
  const began = performance.now();
  const cancelled = Buffer.alloc(1);
  const { collapsed } = await native.collapseHeap(cancelled);
  const collapseMs = performance.now() - began;
  if (kept.length !== objects || cancelled[0] !== 0) throw new Error('objects are gone');
  return { loaded, collected, collapsed, collapseMs };
}

async function runInChild({ reserve, execArgv }: Setting, objects: number): Promise<Result> {
  const child = fork(import.meta.filename, [String(reserve), String(objects)], { execArgv });
  const [result] = await once(child, 'message');
  return result as Result;
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
}

function percent(values: readonly number[]): string {
  const [low, middle, high] = [Math.min(...values), median(values), Math.max(...values)];
  return `${[middle, low, high].map((value) => Math.round(value * 100)).join(' ')} %`;
}

async function row(setting: Setting, objects: number): Promise<Record<string, string>> {
  const results: Result[] = [];
  for (let count = 0; count < RUNS; count++) results.push(await runInChild(setting, objects));
  return {
    reserved: setting.reserve ? 'yes' : 'no',
    'young generation': setting.execArgv.length > 0 ? '2 MB' : 'default',
    'MB loaded': median(results.map(({ loaded }) => loaded.mib)).toFixed(0),
    'in windows': percent(results.map(({ loaded }) => loaded.share)),
    'MB collected': median(results.map(({ collected }) => collected.mib)).toFixed(0),
    'in windows then': percent(results.map(({ collected }) => collected.share)),
    'windows collapsed': String(median(results.map(({ collapsed }) => collapsed))),
    'collapse ms': median(results.map(({ collapseMs }) => collapseMs)).toFixed(1),
  };
}

const [, , reserve, objects] = process.argv;
if (reserve) {
  const result = await run(reserve === 'true', Number(objects));
  process.send?.(result);
  process.disconnect?.();
} else {
  for (const [name, count] of Object.entries(LOADS)) {
    const rows: Record<string, string>[] = [];
    for (const setting of SETTINGS) rows.push(await row(setting, count));
    console.log(`\n${name}: median of ${RUNS} runs, shares as median, lowest, highest`);
    console.table(rows);
  }
}
