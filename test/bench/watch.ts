/**
 * The watcher beside chokidar, each in a process of its own, on the same trees: setting up (time, memory, kernel
 * watches), bursts of 2,000 operations (the reported share, in the first three rows of the table), latency of a CREATE.
 * Run: `npm run bench -- watch`
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import {
  appendFileSync,
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { FSWatcher } from 'chokidar';
import { Watcher } from '../../src/daemon/services/watch/watcher.ts';
import { testLanes } from '../support/services/lanes.ts';
import { median } from './figures.ts';

const RUNS = 3;
const OPERATIONS = 2000;
const LATENCIES = 500;
/** How long the last events of a burst are waited for. */
const SETTLE_MS = 1500;

type Kind = 'own' | 'chokidar';
type Count = Record<string, number>;
interface Live {
  readonly counts: Count;
  onEvent: (path: string) => void;
}

/** Watches with one of the two, and counts the events by type. */
async function start(kind: Kind, root: string): Promise<Live> {
  const live: Live = { counts: {}, onEvent: () => {} };
  const count = (type: string, path: string) => {
    live.counts[type] = (live.counts[type] ?? 0) + 1;
    live.onEvent(path);
  };
  if (kind === 'chokidar') {
    const watcher = new FSWatcher({ ignoreInitial: true, followSymlinks: false, atomic: false });
    watcher.on('all', (type, path) => count(type, path));
    watcher.add(root);
    await once(watcher, 'ready');
  } else {
    const watch = await new Watcher(testLanes).watch(root, { recursive: true, allowNetworkMounts: false });
    void read(watch.next.bind(watch), count);
  }
  return live;
}

async function read(
  next: () => Promise<readonly { type: string; path: string }[] | null>,
  count: (type: string, path: string) => void,
): Promise<void> {
  for (let events = await next(); events; events = await next()) {
    for (const { type, path } of events) count(type, path);
  }
}

function memoryMb(): number {
  const anonymous = /^Anonymous:\s+(\d+)/m.exec(readFileSync('/proc/self/smaps_rollup', 'utf8'));
  return Number(anonymous?.[1]) / 1024;
}

function kernelWatches(): number {
  const read = (fd: string) => {
    try {
      return readFileSync(`/proc/self/fdinfo/${fd}`, 'utf8').match(/^inotify /gm)?.length ?? 0;
    } catch {
      return 0;
    }
  };
  return readdirSync('/proc/self/fdinfo').reduce((sum, fd) => sum + read(fd), 0);
}

async function measureSetup(kind: Kind, root: string): Promise<Count> {
  const memory = memoryMb();
  let stall = 0;
  let last = performance.now();
  const timer = setInterval(() => {
    stall = Math.max(stall, performance.now() - last);
    last = performance.now();
  }, 1);
  const began = performance.now();
  await start(kind, root);
  const ms = performance.now() - began;
  clearInterval(timer);
  return { ms, mb: memoryMb() - memory, watches: kernelWatches(), stall };
}

/** Operations, and the events that report them: ours and chokidar's. */
const BURSTS: Record<
  string,
  { operate: (at: (name: string) => string, n: number) => void; told: string[]; each: number }
> = {
  'rename told as rename': {
    operate: (at, n) => renameSync(at(`${n}`), at(`to-${n}`)),
    told: ['rename'],
    each: 1,
  },
  'chmod told as chmod': { operate: (at, n) => chmodSync(at(`${n}`), 0o600), told: ['chmod'], each: 1 },
  'create, write, delete': {
    operate: (at, n) => {
      writeFileSync(at(`new-${n}`), 'x');
      unlinkSync(at(`new-${n}`));
    },
    told: ['create', 'add', 'write', 'change', 'remove', 'unlink'],
    each: 3,
  },
  'ten appends': {
    operate: (at, n) => appendFileSync(at(`${Math.floor(n / 10)}`), 'x'),
    told: ['write', 'change'],
    each: 1,
  },
  'delete and recreate': {
    operate: (at, n) => {
      unlinkSync(at(`${n}`));
      writeFileSync(at(`${n}`), '');
    },
    told: ['remove', 'unlink', 'create', 'add'],
    each: 2,
  },
};

async function measureBursts(kind: Kind, root: string): Promise<Count> {
  const shares: Count = {};
  for (const [what, { operate, told, each }] of Object.entries(BURSTS)) {
    const directory = join(root, what.replaceAll(' ', '-'));
    mkdirSync(directory);
    for (let n = 0; n < OPERATIONS; n++) writeFileSync(join(directory, `${n}`), '');
    const { counts } = await start(kind, directory);
    for (let n = 0; n < OPERATIONS; n++) operate((name) => join(directory, name), n);
    await delay(SETTLE_MS);
    const count = told.reduce((sum, type) => sum + (counts[type] ?? 0), 0);
    shares[what] = (100 * count) / (OPERATIONS * each);
  }
  return shares;
}

async function measureLatency(kind: Kind, root: string): Promise<Count> {
  const live = await start(kind, root);
  const times: number[] = [];
  for (let n = 0; n < LATENCIES; n++) {
    const path = join(root, `latency-${n}`);
    const seen = new Promise<void>((resolve) => {
      live.onEvent = (each) => each === path && resolve();
    });
    const began = performance.now();
    writeFileSync(path, '');
    await seen;
    times.push(performance.now() - began);
    await delay(1);
  }
  times.sort((a, b) => a - b);
  return { median: median(times), p99: times[Math.floor(LATENCIES * 0.99)] ?? Number.NaN };
}

const MEASURES = { setup: measureSetup, bursts: measureBursts, latency: measureLatency };
type Measure = keyof typeof MEASURES;

/** Measures in a process of its own. */
async function inProcess(measure: Measure, kind: Kind, root: string): Promise<Count> {
  const child = fork(import.meta.filename, [measure, kind, root]);
  const [result] = await once(child, 'message');
  await once(child, 'exit');
  return result as Count;
}

function makeTree(root: string, directories: number, files: number): void {
  for (let d = 0; d < directories; d++) {
    const path = join(root, `${d % 50}`, `${Math.floor(d / 50)}`);
    mkdirSync(path, { recursive: true });
    for (let f = 0; f < files; f++) writeFileSync(join(path, `${f}`), '');
  }
}

async function compare(): Promise<void> {
  const base = mkdtempSync(join(tmpdir(), 'envd-bench-watch-'));
  try {
    const tree = join(base, 'tree');
    makeTree(tree, 2500, 20);
    const results: Record<Kind, Count[]> = { own: [], chokidar: [] };
    for (let run = 0; run < RUNS; run++) {
      for (const kind of ['own', 'chokidar'] as const)
        results[kind].push(await inProcess('setup', kind, tree));
    }
    console.log('recursive watch of 50,000 files in 2,500 directories (median of 3):');
    const of = (kind: Kind, key: string) => median(results[kind].map((result) => result[key] ?? Number.NaN));
    for (const key of ['ms', 'mb', 'watches', 'stall']) {
      const ratio = of('own', key) / of('chokidar', key);
      console.log(key.padEnd(8), of('own', key).toFixed(1), of('chokidar', key).toFixed(1), ratio.toFixed(3));
    }
    for (const measure of ['bursts', 'latency'] as const) {
      console.log(measure === 'bursts' ? 'told of a burst, %:' : 'a CREATE after its change, ms:');
      const rows: Record<string, Count> = {};
      for (const kind of ['own', 'chokidar'] as const) {
        const root = join(base, `${measure}-${kind}`);
        mkdirSync(root);
        rows[kind] = await inProcess(measure, kind, root);
      }
      console.table(rows);
    }
  } finally {
    rmSync(base, { recursive: true });
  }
}

// inotify does not keep the process alive.
const alive = setInterval(() => {}, 1000);
const [measure, kind, root] = process.argv.slice(2);
if (measure && kind && root) {
  process.send?.(await MEASURES[measure as Measure](kind as Kind, root), () => process.exit(0));
} else {
  await compare();
}
clearInterval(alive);
