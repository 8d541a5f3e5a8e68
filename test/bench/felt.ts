/**
 * The times that people wait for, through the published client, each beside a floor: the same without a daemon. The image's daemon;
 * `npm run build` first. Files are below TMPDIR. The 99th percentile of fewer than 100 rounds is their longest.
 * Run: `npm run bench -- felt [ROUNDS] [ROUNDS OF 1 GIB]`
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, mkdirSync, openSync, rmSync, watch, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { spawn as spawnTerminal } from 'node-pty';
import { startGuest } from '../support/programs/sandbox.ts';
import { median, printTable, samplesOf, show } from './figures.ts';
import { startNginx } from './nginx.ts';

const [rounds = 100, longRounds = 3] = process.argv.slice(2).map(Number);
const MIB = 1024 ** 2;
const ENTRIES = 10_000;

/** What is timed. It may return what is to be done after it, which is not. */
type Work = () => Promise<unknown>;

const program = process.env.ENVD_PROGRAM ?? fileURLToPath(new URL('../../dist/bin/envd', import.meta.url));
await using guest = await startGuest({ command: [program] });
const { sandbox, daemon, directory } = guest;
await using nginx = await startNginx(directory);
const at = (name: string) => join(directory, name);

const rows: Record<string, string>[] = [];
await measure('run `true`', rounds, () => sandbox.commands.run('true'), 'bash', runBash);
await measureTerminal();
await measureLog();
await measureWatch();
await measureList();
for (const [size, name, times] of [
  [MIB, '1 MiB', rounds],
  [1024 * MIB, '1 GiB', longRounds],
] as const)
  await measureTransfers(size, name, times);
await measurePauses();
printTable(`Milliseconds, ${rounds} rounds, ${longRounds} of 1 GiB`, rows);

/** Adds a row: the times of `work` and of its floor, in turns. */
async function measure(
  what: string,
  times: number,
  work: Work,
  floorName: string,
  floor: Work,
): Promise<void> {
  const contestants = { ours: timed(work), floor: timed(floor) };
  const { ours, floor: bare } = await samplesOf(contestants, times);
  addRow(what, ours, floorName, bare);
}

function addRow(what: string, ours: readonly number[], floorName: string, floor: readonly number[]): void {
  rows.push({
    what,
    p50: show(median(ours)),
    p99: show(percentile99(ours)),
    floor: floorName,
    'floor p50': show(median(floor)),
    'floor p99': show(percentile99(floor)),
    'p50 / floor': show(median(ours) / median(floor)),
  });
}

function timed(work: Work): () => Promise<number> {
  return async () => {
    const started = performance.now();
    const after = await work();
    const taken = performance.now() - started;
    if (typeof after === 'function') await after();
    return taken;
  };
}

function percentile99(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.ceil(values.length * 0.99) - 1] ?? Number.NaN;
}

/** The client runs each command in a login shell. */
async function runBash(): Promise<void> {
  const env = { ...process.env, HOME: directory };
  await once(spawn('bash', ['-l', '-c', 'true'], { stdio: 'pipe', env }), 'close');
}

/** From a key to its echo: `cat` leaves the echo to the terminal. */
async function measureTerminal(): Promise<void> {
  let isShown = () => {};
  const onData = () => isShown();
  const shown = () => new Promise<void>((resolve) => (isShown = resolve));
  const key = new TextEncoder().encode('x');
  const handle = await sandbox.pty.create({ cols: 80, rows: 24, onData });
  const started = shown();
  await sandbox.pty.sendInput(handle.pid, new TextEncoder().encode('exec cat\n'));
  await started;
  const bare = spawnTerminal('cat', [], { cols: 80, rows: 24 });
  bare.onData(onData);
  const ours = async () => {
    const echo = shown();
    await sandbox.pty.sendInput(handle.pid, key);
    await echo;
  };
  const floor = async () => {
    const echo = shown();
    bare.write('x');
    await echo;
  };
  await measure('a key’s echo in a terminal', rounds, ours, 'cat in a terminal', floor);
  await handle.kill();
  bare.kill();
}

/** From the call to the first output. */
async function measureLog(): Promise<void> {
  const path = at('log');
  writeFileSync(path, Buffer.alloc(100 * MIB, `${'a line of a log '.repeat(5)}\n`));
  const ours = async () => {
    const first = Promise.withResolvers<void>();
    const onStdout = () => first.resolve();
    const handle = await sandbox.commands.run(`cat ${path}`, { background: true, onStdout });
    await first.promise;
    return async () => {
      await handle.kill();
      await handle.disconnect();
    };
  };
  const floor = async () => {
    const child = spawn('bash', ['-l', '-c', `cat ${path}`], { env: { ...process.env, HOME: directory } });
    await once(child.stdout, 'data');
    return () => child.kill('SIGKILL');
  };
  await measure('the first lines of a log of 100 MiB', rounds, ours, 'bash and cat', floor);
  rmSync(path);
}

/** From a new file to its event. */
async function measureWatch(): Promise<void> {
  const [watched, beside] = [at('watched'), at('beside')];
  for (const path of [watched, beside]) mkdirSync(path);
  let isTold = () => {};
  const tell = () => isTold();
  const told = () => new Promise<void>((resolve) => (isTold = resolve));
  const handle = await sandbox.files.watchDir(watched, tell);
  const watcher = watch(beside, tell);
  let files = 0;
  const changeIn = (path: string) => async () => {
    const event = told();
    mkdirSync(join(path, String(files++)));
    await event;
  };
  await measure('a change in a watch', rounds, changeIn(watched), 'inotify of Node', changeIn(beside));
  watcher.close();
  await handle.stop();
}

async function measureList(): Promise<void> {
  const path = at('many');
  mkdirSync(path);
  for (let entry = 0; entry < ENTRIES; entry++) writeFileSync(join(path, `file-${entry}`), '');
  const ours = () => sandbox.files.list(path);
  const floor = async () => {
    const child = spawn('ls', ['-l', path]);
    child.stdout.resume();
    await once(child, 'close');
  };
  await measure(`a list of ${ENTRIES} files`, Math.ceil(rounds / 4), ours, 'ls -l', floor);
}

async function measureTransfers(size: number, name: string, times: number): Promise<void> {
  const bytes = Buffer.alloc(size, 'envd');
  const blob = new Blob([bytes]);
  const upload = () => sandbox.files.write(at('target'), blob);
  await measure(`an upload of ${name}`, times, upload, 'cat >file', () => storeByCat(bytes));
  // The client's fetch asks for gzip, which the daemon then uses and this nginx does not.
  const download = async () => drain(await sandbox.files.read(at('target'), { format: 'stream' }));
  const floor = async () => drain((await fetch(`http://127.0.0.1:${nginx.port}/target`)).body);
  await measure(`a download of ${name}`, times, download, 'nginx', floor);
}

async function storeByCat(bytes: Buffer): Promise<void> {
  const file = openSync(at('stored'), 'w');
  const child = spawn('cat', { stdio: ['pipe', file, 'inherit'] });
  closeSync(file);
  child.stdin?.end(bytes);
  await once(child, 'close');
}

async function drain(body: ReadableStream<Uint8Array> | null): Promise<void> {
  if (body) for await (const _ of body);
}

/** The calls of a platform before a pause and after a resume; the machine itself is not stopped. */
async function measurePauses(): Promise<void> {
  const [pauses, resumes]: [number[], number[]] = [[], []];
  const commands: number[] = [];
  for (let round = 0; round < Math.ceil(rounds / 4); round++) {
    commands.push(await timed(() => sandbox.commands.run('true'))());
    pauses.push(await timed(pause)());
    resumes.push(await timed(resume)());
  }
  addRow('a pause: /freeze and /collapse', pauses, 'run `true`', commands);
  addRow('after it: /init and the first command', resumes, 'run `true`', commands);
}

async function pause(): Promise<void> {
  for (const path of ['/freeze?maxWaitMs=1000', '/collapse']) await call(path, {});
}

async function resume(): Promise<void> {
  await call('/init', {});
  await sandbox.commands.run('true');
}

async function call(path: string, body: object): Promise<void> {
  const headers = { 'content-type': 'application/json' };
  const response = await fetch(daemon.url + path, { method: 'POST', headers, body: JSON.stringify(body) });
  const text = await response.text();
  if (!response.ok) throw new Error(`${path}: ${response.status} ${text}`);
}
