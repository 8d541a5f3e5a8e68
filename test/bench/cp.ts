/**
 * `envctl cp` of one large file and of many small ones, each way, beside `cat` or `cp -R`, which do not leave the kernel, and beside `tar`
 * through a pipe, as `tar | ssh` without ssh. Each has its start in it.
 * Arguments: MiB of the large file, number of small files, rounds.
 */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { createReadStream, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { promisify } from 'node:util';
import { envctlCommand } from '../support/programs/programs.ts';
import { startBenchDaemon } from './daemon.ts';
import { printTable, show, takeTurns } from './figures.ts';

const [mib = 1024, files = 10_000, rounds = 5] = process.argv.slice(2).map(Number);
// Not its synchronous form: the log of the daemon must be read meanwhile.
const execute = promisify(execFile);
const SMALL_BYTES = 4096;
const PER_DIRECTORY = 100;

await using daemon = await startBenchDaemon();
const at = (name: string) => join(daemon.scratch, name);
const from = { large: at('large'), small: at('small') } as const;
await makeLarge(from.large);
makeSmall(from.small);

async function makeLarge(directory: string): Promise<void> {
  mkdirSync(directory);
  await execute('sh', ['-c', `head -c ${mib}M /dev/urandom >"$1"`, 'sh', join(directory, 'file')]);
}

function makeSmall(directory: string): void {
  const content = Buffer.alloc(SMALL_BYTES, 'envd');
  for (let index = 0; index < files; index++) {
    const parent = join(directory, `d${Math.floor(index / PER_DIRECTORY)}`);
    if (index % PER_DIRECTORY === 0) mkdirSync(parent, { recursive: true });
    content.writeUInt32LE(index);
    writeFileSync(join(parent, `f${index}`), content);
  }
}

const [node, program] = envctlCommand();
const env = { PATH: process.env.PATH ?? '', ENVCTL_URL: daemon.url, HOME: '/nonexistent' };
const envctl = (...args: string[]) => execute(node, [program, 'cp', '-q', ...args], { env });
const shell = (script: string, ...args: string[]) => execute('sh', ['-c', script, 'sh', ...args]);
const TAR = 'mkdir "$2" && tar -C "$1" -cf - . | tar -C "$2" -xf -';

/** The seconds that a copy to a new place takes. What was written before is on the disk by then. */
const timed = (copy: (to: string) => Promise<unknown>) => async () => {
  const to = at('to');
  rmSync(to, { recursive: true, force: true });
  await execute('sync', ['-f', daemon.scratch]);
  const started = performance.now();
  await copy(to);
  return (performance.now() - started) / 1000;
};

async function digestOf(path: string): Promise<string> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(path), hash);
  return hash.digest('hex');
}

function table(title: string, seconds: Readonly<Record<string, number>>, unit: string, amount: number): void {
  const floor = seconds['tar through a pipe'] ?? Number.NaN;
  const rows = Object.entries(seconds).map(([name, value]) => ({
    '': name,
    s: show(value),
    [unit]: show(amount / value),
    'of tar': (floor / value).toFixed(2),
  }));
  printTable(title, rows);
}

const large = join(from.large, 'file');
const ofLarge = await takeTurns(
  {
    cat: timed((to) => shell('cat "$1" >"$2"', large, to)),
    'tar through a pipe': timed((to) => shell(TAR, from.large, to)),
    'envctl cp, up': timed((to) => envctl(large, `:${to}`)),
    'envctl cp, down': timed((to) => envctl(`:${large}`, to)),
  },
  rounds,
);
// The last one is still there.
if ((await digestOf(large)) !== (await digestOf(at('to')))) throw new Error('the copy is another file');
table(`A file of ${mib} MiB`, ofLarge, 'MiB/s', mib);

const ofSmall = await takeTurns(
  {
    'cp -R': timed((to) => shell('cp -R "$1" "$2"', from.small, to)),
    'tar through a pipe': timed((to) => shell(TAR, from.small, to)),
    'envctl cp, up': timed((to) => envctl(from.small, `:${to}`)),
    'envctl cp, down': timed((to) => envctl(`:${from.small}`, to)),
  },
  rounds,
);
await shell('diff -r "$1" "$2"', from.small, at('to'));
table(`${files} files of ${SMALL_BYTES / 1024} KiB`, ofSmall, 'files/s', files);
