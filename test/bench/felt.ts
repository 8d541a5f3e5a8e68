/**
 * The times that people wait for, through the published client, each beside a floor: the same without a daemon. The image's daemon;
 * `npm run build` first. Files are below TMPDIR. The 99th percentile of fewer than 100 rounds is their longest.
 *
 * `ENVD_REFERENCE` is the command line of another daemon, which takes part in turns. It listens on the port in the variable PORT.
 * Run: `npm run bench -- felt [ROUNDS] [ROUNDS OF 1 GIB]`
 */
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { closeSync, mkdirSync, mkdtempSync, openSync, rmSync, watch, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Sandbox } from 'e2b';
import { spawn as spawnTerminal } from 'node-pty';
import { init, startGuest } from '../support/programs/sandbox.ts';
import { freePort } from '../support/servers/free-port.ts';
import { until } from '../support/until.ts';
import { median, printTable, samplesOf, show } from './figures.ts';
import { startNginx } from './nginx.ts';

const [rounds = 100, longRounds = 3] = process.argv.slice(2).map(Number);
const MIB = 1024 ** 2;
const ENTRIES = 10_000;

/** What is timed. It may return what is to be done after it, which is not. */
type Work = () => Promise<unknown>;
interface Subject {
  readonly sandbox: Sandbox;
  readonly url: string;
}
/** What a daemon is asked to do. Some of it is prepared. */
type Task = (subject: Subject) => Work | Promise<Work>;

const program = process.env.ENVD_PROGRAM ?? fileURLToPath(new URL('../../dist/bin/envd', import.meta.url));
await using guest = await startGuest({ command: [program] });
const { directory } = guest;
const ours: Subject = { sandbox: guest.sandbox, url: guest.daemon.url };
await using reference = await startReference(process.env.ENVD_REFERENCE);
await using nginx = await startNginx(directory);
const at = (name: string) => join(directory, name);

const rows: Record<string, string>[] = [];
await measure(
  'run `true`',
  rounds,
  ({ sandbox }) =>
    () =>
      sandbox.commands.run('true'),
  ['bash', runBash],
);
await measure('50 commands at once', Math.ceil(rounds / 10), ({ sandbox }) => () => {
  return Promise.all(Array.from({ length: 50 }, () => sandbox.commands.run('true')));
});
await measureTerminal();
await measureLog();
await measureWatch();
await measureSmallFiles();
for (const [size, name, times] of [
  [MIB, '1 MiB', rounds],
  [32 * MIB, '32 MiB', Math.ceil(rounds / 4)],
  [1024 * MIB, '1 GiB', longRounds],
] as const)
  if (times > 0) await measureTransfers(size, name, times);
await measurePauses();
const today = new Date().toISOString().slice(0, 10);
printTable(`${today}: milliseconds, ${rounds} rounds, ${longRounds} of 1 GiB`, rows);

/** Starts the other daemon, if there is one. */
async function startReference(command: string | undefined): Promise<(Subject & AsyncDisposable) | null> {
  if (command === undefined) return null;
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const env = { ...process.env, PORT: String(port) };
  const child = spawn('sh', ['-c', `exec ${command}`], { env, stdio: 'ignore' });
  const home = mkdtempSync(join(tmpdir(), 'envd-reference-'));
  const ended = once(child, 'close');
  await until(
    'the reference answers',
    async () => (await fetch(`${url}/health`).catch(() => null))?.ok === true,
  );
  await init({ url }, { defaultUser: 'root', envVars: { HOME: home } });
  return {
    sandbox: await Sandbox.create({ debug: true, sandboxUrl: url }),
    url,
    async [Symbol.asyncDispose]() {
      child.kill('SIGKILL');
      await ended;
      rmSync(home, { recursive: true, force: true });
    },
  };
}

/** Adds a row: the times of each daemon and of the floor, in turns. */
async function measure(
  what: string,
  times: number,
  task: Task,
  floor?: readonly [name: string, work: Work],
): Promise<void> {
  const contestants: Record<string, () => Promise<number>> = { ours: timed(await task(ours)) };
  if (reference) contestants.reference = timed(await task(reference));
  if (floor) contestants.floor = timed(floor[1]);
  const samples = await samplesOf(contestants, times);
  addRow(what, samples.ours ?? [], samples.reference, floor && [floor[0], samples.floor ?? []]);
}

function addRow(
  what: string,
  own: readonly number[],
  other?: readonly number[],
  floor?: readonly [name: string, times: readonly number[]],
): void {
  const row: Record<string, string> = { what, p50: show(median(own)), p99: show(percentile99(own)) };
  if (reference) {
    row['reference p50'] = other ? show(median(other)) : '';
    row['reference p99'] = other ? show(percentile99(other)) : '';
    row['p50 of it'] = other ? show(median(own) / median(other)) : '';
    row['p99 of it'] = other ? show(percentile99(own) / percentile99(other)) : '';
  }
  row.beside = floor?.[0] ?? '';
  row['its p50'] = floor ? show(median(floor[1])) : '';
  row['p50 / its p50'] = floor ? show(median(own) / median(floor[1])) : '';
  rows.push(row);
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
  const ends: (() => Promise<unknown>)[] = [];
  const typed = async (send: (onData: () => void) => Promise<{ type(): unknown; begin?(): unknown }>) => {
    let isShown = () => {};
    const shown = () => new Promise<void>((resolve) => (isShown = resolve));
    const terminal = await send(() => isShown());
    const started = shown();
    await terminal.begin?.();
    if (terminal.begin) await started;
    return async () => {
      const echo = shown();
      await terminal.type();
      await echo;
    };
  };
  const task: Task = ({ sandbox }) =>
    typed(async (onData) => {
      const handle = await sandbox.pty.create({ cols: 80, rows: 24, onData });
      ends.push(() => handle.kill());
      const send = (text: string) => sandbox.pty.sendInput(handle.pid, new TextEncoder().encode(text));
      return { type: () => send('x'), begin: () => send('exec cat\n') };
    });
  const bare = spawnTerminal('cat', [], { cols: 80, rows: 24 });
  const floor = await typed(async (onData) => {
    bare.onData(onData);
    return { type: () => bare.write('x') };
  });
  await measure('a key’s echo in a terminal', rounds, task, ['cat in a terminal', floor]);
  for (const end of ends) await end();
  bare.kill();
}

/** From the call to the first output. */
async function measureLog(): Promise<void> {
  const path = at('log');
  writeFileSync(path, Buffer.alloc(100 * MIB, `${'a line of a log '.repeat(5)}\n`));
  const task: Task =
    ({ sandbox }) =>
    async () => {
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
  await measure('the first lines of a log of 100 MiB', rounds, task, ['bash and cat', floor]);
  rmSync(path);
}

/** From a new file to its event. */
async function measureWatch(): Promise<void> {
  const ends: (() => unknown)[] = [];
  let directories = 0;
  const changed = async (
    start: (path: string, tell: () => void) => Promise<() => unknown>,
  ): Promise<Work> => {
    const path = at(`watched-${directories++}`);
    mkdirSync(path);
    let isTold = () => {};
    ends.push(await start(path, () => isTold()));
    let files = 0;
    return async () => {
      const event = new Promise<void>((resolve) => (isTold = resolve));
      mkdirSync(join(path, String(files++)));
      await event;
    };
  };
  const task: Task = ({ sandbox }) =>
    changed(async (path, tell) => {
      const handle = await sandbox.files.watchDir(path, tell);
      return () => handle.stop();
    });
  const floor = await changed(async (path, tell) => {
    const watcher = watch(path, tell);
    return () => watcher.close();
  });
  await measure('a change in a watch', rounds, task, ['inotify of Node', floor]);
  for (const end of ends) await end();
}

async function measureSmallFiles(): Promise<void> {
  const write = (name: string, bytes: Uint8Array<ArrayBuffer>) => {
    const blob = new Blob([bytes]);
    return ({ sandbox }: Subject) =>
      () =>
        sandbox.files.write(at(name), blob);
  };
  await measure('a write of 4 KiB', rounds, write('small', new Uint8Array(4096)));
  await measure(
    'whether a file exists',
    rounds,
    ({ sandbox }) =>
      () =>
        sandbox.files.exists(at('small')),
  );
  await measure('100 writes of 4 KiB at once', Math.ceil(rounds / 10), (subject) => {
    const writes = Array.from({ length: 100 }, (_, file) =>
      write(`small-${file}`, new Uint8Array(4096))(subject),
    );
    return () => Promise.all(writes.map((work) => work()));
  });
  for (const [entries, times] of [
    [50, rounds],
    [ENTRIES, Math.ceil(rounds / 4)],
  ] as const) {
    const path = at(`many-${entries}`);
    mkdirSync(path);
    for (let entry = 0; entry < entries; entry++) writeFileSync(join(path, `file-${entry}`), '');
    const floor = async () => {
      const child = spawn('ls', ['-l', path]);
      child.stdout.resume();
      await once(child, 'close');
    };
    await measure(
      `a list of ${entries} files`,
      times,
      ({ sandbox }) =>
        () =>
          sandbox.files.list(path),
      ['ls -l', floor],
    );
  }
}

/** Of random bytes, which compression does not shrink: the client accepts gzip. */
async function measureTransfers(size: number, name: string, times: number): Promise<void> {
  const bytes = Buffer.concat(
    Array.from({ length: Math.ceil(size / (32 * MIB)) }, () => randomBytes(Math.min(size, 32 * MIB))),
  );
  const blob = new Blob([bytes]);
  const upload: Task =
    ({ sandbox }) =>
    () =>
      sandbox.files.write(at('target'), blob);
  await measure(`an upload of ${name}`, times, upload, ['cat >file', () => storeByCat(bytes)]);
  const download: Task =
    ({ sandbox }) =>
    async () =>
      drain(await sandbox.files.read(at('target'), { format: 'stream' }));
  const floor = async () => drain((await fetch(`http://127.0.0.1:${nginx.port}/target`)).body);
  await measure(`a download of ${name}`, times, download, ['nginx', floor]);
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
    commands.push(await timed(() => ours.sandbox.commands.run('true'))());
    pauses.push(await timed(pause)());
    resumes.push(await timed(resume)());
  }
  addRow('a pause: /freeze and /collapse', pauses, undefined, ['run `true`', commands]);
  addRow('after it: /init and the first command', resumes, undefined, ['run `true`', commands]);
}

async function pause(): Promise<void> {
  for (const path of ['/freeze?maxWaitMs=1000', '/collapse']) await call(path, {});
}

async function resume(): Promise<void> {
  await call('/init', {});
  await ours.sandbox.commands.run('true');
}

async function call(path: string, body: object): Promise<void> {
  const headers = { 'content-type': 'application/json' };
  const response = await fetch(ours.url + path, { method: 'POST', headers, body: JSON.stringify(body) });
  const text = await response.text();
  if (!response.ok) throw new Error(`${path}: ${response.status} ${text}`);
}
