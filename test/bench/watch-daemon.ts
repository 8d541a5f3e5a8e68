/**
 * Watches of the real daemon, over its socket: the time from a change to its event at the client (beside a GET
 * /health at the same moment), the cost of a thousand watches, and what 10,000 opened and closed ones leave behind.
 * Run: `npm run bench -- watch-daemon`
 */
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { Agent, get } from 'node:http';
import { join } from 'node:path';
import { createClient } from '@connectrpc/connect';
import { createConnectTransport } from '@connectrpc/connect-node';
import { Filesystem } from '../../src/gen/filesystem/filesystem_pb.js';
import { startBenchDaemon } from './daemon.ts';
import { cpuMs, median, printTable, residentMib, show } from './figures.ts';

const CHANGES = 1000;
const CYCLES = Number(process.env.CYCLES ?? 10_000);
const MANY = 1000;

await using daemon = await startBenchDaemon();
const transport = createConnectTransport({ baseUrl: daemon.url, httpVersion: '1.1' });
const client = createClient(Filesystem, transport);
const agent = new Agent({ keepAlive: true });

function ping(): Promise<void> {
  return new Promise((resolve, reject) => {
    get(`${daemon.url}/health`, { agent }, (response) => response.resume().once('end', resolve)).once(
      'error',
      reject,
    );
  });
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await work();
  return performance.now() - start;
}

async function latency(includeEntry: boolean): Promise<Record<string, string>> {
  const path = join(daemon.scratch, `latency-${includeEntry}`);
  mkdirSync(path);
  const gone = new AbortController();
  const stream = client.watchDir({ path, includeEntry }, { signal: gone.signal })[Symbol.asyncIterator]();
  await stream.next();
  const [events, pings]: [number[], number[]] = [[], []];
  for (let n = 0; n < CHANGES; n++) {
    pings.push(await timed(ping));
    const next = stream.next();
    events.push(
      await timed(() => {
        mkdirSync(join(path, `${n}`));
        return next;
      }),
    );
  }
  gone.abort();
  const p99 = (values: number[]) =>
    values.toSorted((a, b) => a - b)[Math.floor(CHANGES * 0.99)] ?? Number.NaN;
  return {
    'CREATE to its event': includeEntry ? 'with entry' : 'without entry',
    'median, ms': show(median(events)),
    'p99, ms': show(p99(events)),
    'GET /health, median': show(median(pings)),
    'GET /health, p99': show(p99(pings)),
    'ratio of medians': show(median(events) / median(pings)),
  };
}

function holds(when: string): Record<string, string> {
  const fdinfo = readdirSync(`/proc/${daemon.pid}/fdinfo`);
  const watches = fdinfo.map((fd) => {
    try {
      return readFileSync(`/proc/${daemon.pid}/fdinfo/${fd}`, 'utf8').match(/^inotify /gm)?.length ?? 0;
    } catch {
      return 0;
    }
  });
  return {
    when,
    'kernel watches': String(watches.reduce((sum, each) => sum + each, 0)),
    descriptors: String(fdinfo.length),
    'resident, MiB': residentMib(daemon.pid).toFixed(1),
    'CPU so far, s': (cpuMs(daemon.pid) / 1000).toFixed(1),
  };
}

async function cycles(path: string): Promise<void> {
  const rows = [holds('before')];
  for (let n = 1; n <= CYCLES; n++) {
    const { watcherId } = await client.createWatcher({ path, recursive: true });
    await client.removeWatcher({ watcherId });
    if (n % (CYCLES / 5) === 0) rows.push(holds(`after ${n}`));
  }
  await fetch(`${daemon.url}/collapse`, { method: 'POST' });
  rows.push(holds('after /collapse, which collects'));
  printTable(`${CYCLES} recursive watches of 20 directories made and removed`, rows);
}

async function many(path: string): Promise<void> {
  const rows = [holds('before')];
  const ids: string[] = [];
  for (let n = 0; n < MANY; n++) ids.push((await client.createWatcher({ path, recursive: true })).watcherId);
  rows.push(holds(`${MANY} watches`));
  const ms = await timed(async () => {
    writeFileSync(join(path, 'file'), '');
    for (const watcherId of ids) {
      // The first replies may precede the event.
      let events = 0;
      while (events === 0) events = (await client.getWatcherEvents({ watcherId })).events.length;
      if (events !== 1) throw new Error(`${events} events`);
    }
  });
  for (const watcherId of ids) await client.removeWatcher({ watcherId });
  rows.push(holds('removed'));
  printTable(
    `${MANY} recursive watches of the same 20 directories; one file told to all in ${show(ms)} ms`,
    rows,
  );
}

const tree = join(daemon.scratch, 'tree');
for (let n = 0; n < 19; n++) mkdirSync(join(tree, `${n}`), { recursive: true });
printTable(`${CHANGES} directories made, one after the other`, [await latency(false), await latency(true)]);
await cycles(tree);
await many(tree);
agent.destroy();
