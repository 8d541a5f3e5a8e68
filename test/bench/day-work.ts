import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { connectTo } from '../support/clients/clients.ts';
import type { TestDaemon } from '../support/programs/daemon.ts';

const MIB = 1024 ** 2;
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

type Client = ReturnType<typeof connectTo> & { readonly daemon: TestDaemon };

/** A share of a day's work: calls, starts, output, large and small files, a watch. */
export async function liveDay(daemon: TestDaemon, share: number): Promise<void> {
  const client = { daemon, ...connectTo(daemon.url) };
  const part = (whole: number) => Math.max(1, Math.round(whole * share));
  await many(part(DAY.calls), CONNECTIONS, (number) => call(client, number));
  await many(part(DAY.starts), CONNECTIONS / 2, () => start(client, '/bin/true'));
  await start(client, 'head', '-c', String(part(DAY.outputMib) * MIB), '/dev/zero');
  await many(Math.ceil(part(DAY.filesMib) / FILE_MIB / 2), 1, () =>
    transfer(daemon, 'large', FILE_MIB * MIB),
  );
  await many(part(DAY.smallFiles), CONNECTIONS, (number) => transfer(daemon, `small-${number}`, 4096));
  await watch(client, part(DAY.watched));
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
async function call({ daemon, process: rpc, filesystem }: Client, number: number): Promise<unknown> {
  if (number % 4 === 0) return await (await fetch(`${daemon.url}/health`)).arrayBuffer();
  if (number % 4 === 1) return await rpc.list({});
  return await filesystem.stat({ path: number % 4 === 2 ? '/etc/passwd' : '/usr' });
}

async function start({ process: rpc }: Client, cmd: string, ...args: string[]): Promise<void> {
  for await (const { event } of rpc.start({ process: { cmd, args }, stdin: false }))
    if (event?.event.case === 'end' && event.event.value.exitCode !== 0) throw new Error(`'${cmd}' failed`);
}

/** Uploads a file and downloads it. */
async function transfer(daemon: TestDaemon, name: string, bytes: number): Promise<void> {
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
async function watch({ daemon, filesystem }: Client, files: number): Promise<void> {
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
