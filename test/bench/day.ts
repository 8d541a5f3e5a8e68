/**
 * The memory of the image's daemon after a day's work in a minute: calls, starts, output, large and small files, a watch.
 * Once idle, then a minute after each day, without any call meanwhile. `npm run build` first.
 * Run: `npm run bench -- day [SHARE OF A DAY] [DAYS] [SECONDS OF REST]`
 */
import { cpSync, mkdirSync, mkdtempDisposableSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { connectTo } from '../support/clients.ts';
import { startDaemon } from '../support/daemon.ts';
import { cpuMs, printTable } from './figures.ts';

const [share = 1, days = 1, rest = 60] = process.argv.slice(2).map(Number);
const MIB = 1024 ** 2;
/** After the start, until the daemon has trimmed its memory. */
const IDLE_MS = 15_000;
const CONNECTIONS = 16;
const FILE_MIB = 64;
const FILES_PER_DIRECTORY = 20;
/** A whole day. */
const DAY = {
  calls: 20_000,
  starts: 1500,
  outputMib: 2048,
  filesMib: 2048,
  smallFiles: 4000,
  watched: 50_000,
};

// A copy: the kernel joins pages of a file that has run for long, as this Node's has here, and then counts 2 MiB for each touch.
using image = mkdtempDisposableSync(join(tmpdir(), 'envd-day-'));
cpSync(fileURLToPath(new URL('../../dist', import.meta.url)), image.path, { recursive: true });
await using daemon = await startDaemon({ command: [join(image.path, 'bin/envd')] });
const { process: rpc, filesystem } = connectTo(daemon.url);
const part = (whole: number) => Math.max(1, Math.round(whole * share));
const rows = [];
await delay(IDLE_MS);
rows.push({ ...memory('idle'), 'CPU meanwhile, ms': '' });
for (let day = 1; day <= days; day++) {
  await live();
  rows.push(memory(`after day ${day}`));
  const before = cpuMs(daemon.pid);
  await delay(rest * 1000);
  const cpu = (cpuMs(daemon.pid) - before).toFixed(0);
  rows.push({ ...memory(`${rest} s later`), 'CPU meanwhile, ms': cpu });
}
await (await fetch(`${daemon.url}/collapse`, { method: 'POST' })).text();
rows.push(memory('after /collapse'));
printTable(`MiB, days of ${share} of a day`, rows);

async function live(): Promise<void> {
  await many(part(DAY.calls), CONNECTIONS, call);
  await many(part(DAY.starts), CONNECTIONS / 2, () => start('/bin/true'));
  await start('head', '-c', String(part(DAY.outputMib) * MIB), '/dev/zero');
  await many(Math.ceil(part(DAY.filesMib) / FILE_MIB / 2), 1, () => transfer('large', FILE_MIB * MIB));
  await many(part(DAY.smallFiles), CONNECTIONS, (number) => transfer(`small-${number}`, 4096));
  await watch(part(DAY.watched));
}

/** Does `work` that often, at most `atOnce` at a time. */
async function many(
  count: number,
  atOnce: number,
  work: (number: number) => Promise<unknown>,
): Promise<void> {
  let next = 0;
  const worker = async () => {
    while (next < count) await work(next++);
  };
  await Promise.all(Array.from({ length: Math.min(atOnce, count) }, worker));
}

/** A small call, of four kinds in turn. */
async function call(number: number): Promise<unknown> {
  if (number % 4 === 0) return await (await fetch(`${daemon.url}/health`)).arrayBuffer();
  if (number % 4 === 1) return await rpc.list({});
  return await filesystem.stat({ path: number % 4 === 2 ? '/etc/passwd' : '/usr' });
}

async function start(cmd: string, ...args: string[]): Promise<void> {
  for await (const { event } of rpc.start({ process: { cmd, args }, stdin: false }))
    if (event?.event.case === 'end' && event.event.value.exitCode !== 0) throw new Error(`'${cmd}' failed`);
}

/** Uploads a file and downloads it. */
async function transfer(name: string, bytes: number): Promise<void> {
  const url = `${daemon.url}/files?path=${join(daemon.scratch, name)}`;
  const headers = { 'content-type': 'application/octet-stream' };
  const uploaded = await fetch(url, { method: 'POST', headers, body: Buffer.alloc(bytes, 'x') });
  if (uploaded.status !== 200) throw new Error(await uploaded.text());
  await uploaded.arrayBuffer();
  const downloaded = await fetch(url, { headers: { 'accept-encoding': 'identity' } });
  for await (const _ of downloaded.body ?? []);
  rmSync(join(daemon.scratch, name));
}

/** Watches a tree of so many files, and sees a few of them change. */
async function watch(files: number): Promise<void> {
  const root = join(daemon.scratch, 'watched');
  for (let file = 0; file < files; file++) {
    const directory = join(root, String(Math.floor(file / FILES_PER_DIRECTORY)));
    if (file % FILES_PER_DIRECTORY === 0) mkdirSync(directory, { recursive: true });
    writeFileSync(join(directory, String(file)), '');
  }
  const { watcherId } = await filesystem.createWatcher({ path: root, recursive: true });
  writeFileSync(join(root, '0', '0'), 'changed');
  for (let events = 0; events === 0; await delay(10))
    events = (await filesystem.getWatcherEvents({ watcherId })).events.length;
  await filesystem.removeWatcher({ watcherId });
  rmSync(root, { recursive: true });
}

/** Source: proc_pid_smaps(5). */
function memory(when: string): Record<string, string> {
  const text = readFileSync(`/proc/${daemon.pid}/smaps_rollup`, 'utf8');
  const mib = (name: string) => Number(new RegExp(`^${name}: +(\\d+)`, 'm').exec(text)?.[1]) / 1024;
  const [resident, anonymous] = [mib('Rss'), mib('Anonymous')];
  return { when, resident: resident.toFixed(1), anonymous: anonymous.toFixed(1) };
}
