import { spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { freePort } from '../support/servers/free-port.ts';

/*
 * How long the daemon takes to its first answer, and its memory then: from the sources, from dist/ (npm run build
 * first), which has the code that V8 compiles. npm run bench -- start-up [rounds] [name=command…]
 */

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const SETTLE_MS = 500;

interface Variant {
  readonly name: string;
  readonly command: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
}

interface Sample {
  readonly answerMs: number;
  readonly cpuMs: number;
  readonly anonymousMiB: number;
}

const PORT = await freePort();
const scratch = mkdtempSync(join(tmpdir(), 'envd-start-up-'));
const [rounds = '15', ...more] = process.argv.slice(2);
const node = (...args: string[]) => [
  process.execPath,
  '--max-semi-space-size=2',
  '--no-parallel-scavenge',
  ...args,
];
const cache = (name: string) => ({ NODE_COMPILE_CACHE: join(scratch, name) });
const server = `require('http').createServer((q, s) => s.writeHead(204).end()).listen(${PORT})`;
const variants: Variant[] = [
  { name: 'bare node:http', command: node('-e', server) },
  { name: 'sources', command: node(join(ROOT, 'src/daemon/main.ts')) },
  { name: 'sources, compile cache', command: node(join(ROOT, 'src/daemon/main.ts')), env: cache('sources') },
  { name: 'the image', command: [join(ROOT, 'dist/bin/envd')] },
  ...more.map((text) => {
    const [, name = '', command = ''] = /^(.*?)=(.*)$/.exec(text) ?? [];
    return { name, command: command.split(' ') };
  }),
];

const samples = new Map(variants.map((variant) => [variant, [] as Sample[]]));
// The first round fills the caches and is not counted.
for (let round = 0; round <= Number(rounds); round += 1) {
  for (const [variant, list] of samples) {
    const sample = await measure(variant);
    if (round > 0) list.push(sample);
  }
}
rmSync(scratch, { recursive: true });
console.log('| | first answer, ms | CPU until then, ms | anonymous memory, MiB |\n|---|---|---|---|');
for (const [{ name }, list] of samples) {
  const figures = (['answerMs', 'cpuMs', 'anonymousMiB'] as const).map((key) =>
    median(list.map((s) => s[key])),
  );
  console.log(`| ${[name, ...figures.map((figure) => figure.toFixed(1))].join(' | ')} |`);
}

async function measure({ command: [program = '', ...args], env }: Variant): Promise<Sample> {
  const settings = { ENVD_PORT: String(PORT), ENVD_HOST: '127.0.0.1', ENVD_NO_CGROUPS: '1', ...env };
  const start = performance.now();
  const daemon = spawn(program, args, {
    stdio: 'ignore',
    env: { ...settings, ENVD_RUNTIME_DIRECTORY: join(scratch, 'run') },
  });
  const ended = new Promise((resolve) => daemon.once('close', resolve));
  while (!(await answers())) {
    if (daemon.exitCode !== null)
      throw new Error(`'${program} ${args.join(' ')}' exited with ${daemon.exitCode}`);
    await sleep(2);
  }
  const answerMs = performance.now() - start;
  const cpuMs = cpuOf(daemon.pid ?? 0);
  await sleep(SETTLE_MS);
  const anonymousMiB = anonymousKiB(daemon.pid ?? 0) / 1024;
  daemon.kill(); // SIGTERM: the cache is written at exit.
  await ended;
  return { answerMs, cpuMs, anonymousMiB };
}

/** Whether the first line of a response arrives. */
function answers(): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(PORT, '127.0.0.1', () => socket.write('GET /health HTTP/1.1\r\nHost: x\r\n\r\n'));
    socket.once('data', () => {
      resolve(true);
      socket.destroy();
    });
    socket.once('error', () => resolve(false));
  });
}

/** The time of all its threads in milliseconds, by the scheduler: proc_pid_stat(5) counts in ticks, which are too coarse. */
function cpuOf(pid: number): number {
  const tasks = `/proc/${pid}/task`;
  const ofTask = (task: string) => Number(readFileSync(join(tasks, task, 'schedstat'), 'utf8').split(' ')[0]);
  return readdirSync(tasks).reduce((sum, task) => sum + ofTask(task), 0) / 1e6;
}

function anonymousKiB(pid: number): number {
  return Number(/^Anonymous: +(\d+)/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8'))?.[1]);
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[values.length >> 1] ?? Number.NaN;
}
