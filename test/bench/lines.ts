/**
 * Lines per second of programs that make one small write for each, through the real daemon to one client, beside
 * the same programs into a bare pipe, and what the daemon's CPU is for a line.
 * Run: `npm run bench -- lines`
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { drain, startRequest } from '../support/clients/raw-client.ts';
import { startBenchDaemon } from './daemon.ts';
import { cpuMs, median, printTable, show } from './figures.ts';

const ROUNDS = Number(process.env.ROUNDS ?? 5);
/** Writes five lines a turn of its loop, each `pause` µs after the previous one. */
const PAUSING = `
const { writeSync } = require('node:fs');
const [lines, pause] = process.argv.slice(1).map(Number);
let written = 0;
function step() {
  for (let end = written + 5; written < end; written++) {
    writeSync(1, 'line ' + written + '\\n');
    for (const until = performance.now() + pause / 1000; performance.now() < until; );
  }
  if (written < lines) setImmediate(step);
}
step();`;

interface Program {
  readonly name: string;
  readonly lines: number;
  readonly cmd: string;
  readonly args: string[];
}

const PROGRAMS: readonly Program[] = [
  // The pipe is full, and one read takes many lines.
  {
    name: 'as fast as bash can',
    lines: 300_000,
    cmd: 'bash',
    args: ['-c', 'for ((i = 0; i < 300000; i++)); do echo $i; done'],
  },
  // Most lines arrive alone, the most expensive case.
  {
    name: '20 µs after each line',
    lines: 50_000,
    cmd: process.execPath,
    args: ['-e', PAUSING, '50000', '20'],
  },
];

await using daemon = await startBenchDaemon();

async function throughPipe({ cmd, args }: Program): Promise<number> {
  const began = performance.now();
  const child = spawn(cmd, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  child.stdout.resume();
  await once(child, 'close');
  return performance.now() - began;
}

async function throughDaemon({ cmd, args }: Program): Promise<{ ms: number; cpu: number }> {
  const request = startRequest({ process: { cmd, args } }, 'json');
  const before = cpuMs(daemon.pid);
  const began = performance.now();
  const { tail } = await drain(daemon.port, request);
  if (!tail.includes('exit status 0')) throw new Error(tail);
  return { ms: performance.now() - began, cpu: cpuMs(daemon.pid) - before };
}

const rows: Record<string, string>[] = [];
for (const program of PROGRAMS) {
  const { name, lines } = program;
  const samples = { pipe: [] as number[], json: [] as number[], cpu: [] as number[] };
  for (let round = 0; round < ROUNDS; round++) {
    samples.pipe.push(await throughPipe(program));
    const { ms, cpu } = await throughDaemon(program);
    samples.json.push(ms);
    samples.cpu.push(cpu);
  }
  const perSecond = (values: readonly number[]) => lines / (median(values) / 1000);
  rows.push({
    program: name,
    'daemon, lines/s': Math.round(perSecond(samples.json)).toLocaleString('en'),
    'pipe to Node, lines/s': Math.round(perSecond(samples.pipe)).toLocaleString('en'),
    'daemon / pipe': (perSecond(samples.json) / perSecond(samples.pipe)).toFixed(2),
    'CPU of the daemon, µs a line': show((median(samples.cpu) * 1000) / lines),
  });
}
printTable(`Lines of small writes, JSON, medians of ${ROUNDS} rounds`, rows);
