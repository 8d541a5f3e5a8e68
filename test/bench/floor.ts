/**
 * What a call costs the daemon in CPU, with everything around it (hooks, gate, log), beside a bare `node:http` server that
 * does the same work (`bare-server.ts`), in turns, through one light client over 16 connections and one, once both are warm.
 * Uploads go to memory: a disk may take more CPU for a new file than all else.
 * Run: `npm run bench -- floor [CALL…]`; a part of a call's name is enough.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { filesPerSecond } from '../support/clients/bench-files-client.ts';
import { connectTo } from '../support/clients/clients.ts';
import type { TestDaemon } from '../support/programs/daemon.ts';
import { startBenchDaemon } from './daemon.ts';
import { cpuOf, median, printTable, samplesOf, show } from './figures.ts';

const ROUNDS = Number(process.env.ROUNDS ?? 9);
/** Processes of each server: two of one program differ by up to a fifth, for as long as they live. */
const COPIES = 3;
const CALLS = 1000;
/** Rounds before the first that counts: V8 compiles for some 20,000 calls, and its CPU is that of the process, too. */
const WARM_UP = 20;
const CONTENT = Buffer.alloc(4096, 'envd');
const MULTIPART = 'multipart/form-data; boundary=b';
const RAW = 'application/octet-stream';

/** A server under test. */
interface Server {
  readonly pid: number;
  readonly port: number;
}

/** What is measured: the requests of a round, and what is done before each round. */
interface Call {
  readonly server: Server;
  readonly requests: readonly Buffer[];
  readonly prepare?: () => void;
}

function post(path: string, type: string, ...body: (string | Buffer)[]): Buffer {
  const content = Buffer.concat(body.map((part) => Buffer.from(part)));
  const head = [`POST ${path} HTTP/1.1`, 'host: bench', `content-type: ${type}`];
  const lines = [...head, 'connect-protocol-version: 1', `content-length: ${content.length}`];
  return Buffer.concat([Buffer.from(`${lines.join('\r\n')}\r\n\r\n`), content]);
}

const json = (path: string, value: unknown) => post(path, 'application/json', JSON.stringify(value));
const get = (path: string) => Buffer.from(`GET ${path} HTTP/1.1\r\nhost: bench\r\n\r\n`);
const repeated = (request: Buffer) => Array.from({ length: CALLS }, () => request);
const files = (path: string) => `/files?path=${encodeURIComponent(path)}`;

function multipart(path: string): Buffer {
  const head = '--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n';
  return post(files(path), MULTIPART, head, CONTENT, '\r\n--b--\r\n');
}

/** The daemon's calls; `bare` is that of the yardstick for each. `memory`: a directory for uploads. */
function callsOf(daemon: TestDaemon, pid: number, memory: string) {
  const file = join(daemon.scratch, 'file');
  writeFileSync(file, CONTENT);
  const target = join(memory, 'target');
  mkdirSync(target);
  const targets = Array.from({ length: CALLS }, (_, index) => join(target, String(index)));
  const removeAll = () => {
    rmSync(target, { recursive: true });
    mkdirSync(target);
  };
  const upload = (request: (path: string) => Buffer, prepare?: () => void) => ({
    bare: 'stat' as const,
    requests: targets.map(request),
    ...(prepare && { prepare }),
  });
  const raw = (path: string) => post(files(path), RAW, CONTENT);
  const input = { process: { pid }, input: { stdin: Buffer.from('ten bytes\n').toString('base64') } };
  return {
    health: { bare: 'empty', requests: repeated(get('/health')) },
    List: { bare: 'list', requests: repeated(json('/process.Process/List', {})) },
    Stat: { bare: 'stat', requests: repeated(json('/filesystem.Filesystem/Stat', { path: file })) },
    'SendInput, 10 bytes': {
      bare: 'stat',
      requests: repeated(json('/process.Process/SendInput', input)),
    },
    'download, 4 KiB': { bare: 'stat', requests: repeated(get(files(file))) },
    'upload, 4 KiB, multipart, new': upload(multipart, removeAll),
    'upload, 4 KiB, multipart, overwrite': upload(multipart),
    'upload, 4 KiB, raw, new': upload(raw, removeAll),
    'upload, 4 KiB, raw, overwrite': upload(raw),
  } as const;
}

function bareCalls(path: string) {
  return {
    empty: repeated(get('/')),
    list: repeated(json('/list', {})),
    stat: repeated(json('/stat', { path })),
  };
}

/** The samples of each call, of all copies together; `calls` has those of one copy each. */
async function compare(
  calls: readonly Readonly<Record<string, Call>>[],
  connections: number,
  warmUp: number,
) {
  const contestants = calls.flatMap((ofCopy, copy) =>
    Object.entries(ofCopy).map(([name, { server, requests, prepare }]) => {
      const run = async () => {
        prepare?.();
        const cpu = await cpuOf(server.pid, () => filesPerSecond(server.port, requests, connections));
        return (cpu * 1000) / requests.length;
      };
      return [`${copy} ${name}`, run] as const;
    }),
  );
  const samples = await samplesOf(Object.fromEntries(contestants), ROUNDS, warmUp);
  return (name: string) => calls.flatMap((_, copy) => samples[`${copy} ${name}`] ?? []);
}

interface Bare extends Server {
  readonly child: ChildProcess;
}

async function startBare(list: unknown): Promise<Bare> {
  const program = fileURLToPath(new URL('bare-server.ts', import.meta.url));
  const child = fork(program, [JSON.stringify(list)], { execArgv: [] });
  const [port] = (await once(child, 'message')) as [number];
  return { child, pid: child.pid ?? 0, port };
}

/** A process that reads and discards its input. */
async function startReader({ process }: ReturnType<typeof connectTo>, stop: AbortSignal): Promise<number> {
  const config = { cmd: '/bin/sh', args: ['-c', 'exec cat >/dev/null'] };
  const events = process.start({ process: config, stdin: true }, { signal: stop });
  for await (const { event } of events) if (event?.event.case === 'start') return event.event.value.pid;
  throw new Error('the process did not start');
}

async function listOf({ url }: TestDaemon): Promise<unknown> {
  const headers = { 'content-type': 'application/json' };
  const listed = await fetch(`${url}/process.Process/List`, { method: 'POST', headers, body: '{}' });
  return listed.json();
}

const stop = new AbortController();
const wanted = process.argv.slice(2);
const isWanted = (name: string) => wanted.length === 0 || wanted.some((part) => name.includes(part));
await using stack = new AsyncDisposableStack();
const bases = new Map<string, string>();

/** Starts a daemon and a bare server, and returns their calls. */
async function startCopy(copy: number): Promise<Readonly<Record<string, Call>>> {
  const daemon = stack.use(await startBenchDaemon());
  const pid = await startReader(connectTo(daemon.url), stop.signal);
  const bare = await startBare(await listOf(daemon));
  stack.defer(() => bare.child.disconnect());
  const memory = mkdtempSync(
    join(existsSync('/dev/shm') ? '/dev/shm' : daemon.scratch, `envd-floor-${copy}-`),
  );
  stack.defer(() => rmSync(memory, { recursive: true }));
  const ours = Object.entries(callsOf(daemon, pid, memory)).filter(([name]) => isWanted(name));
  for (const [name, { bare: base }] of ours) bases.set(name, `bare ${base}`);
  const bareRequests = Object.entries(bareCalls(join(daemon.scratch, 'file')));
  return Object.fromEntries<Call>([
    ...bareRequests.map(([name, requests]) => [`bare ${name}`, { server: bare, requests }] as const),
    ...ours.map(([name, call]) => [name, { server: daemon, ...call }] as const),
  ]);
}

const calls: Readonly<Record<string, Call>>[] = [];
for (let copy = 0; copy < COPIES; copy++) calls.push(await startCopy(copy));
for (const connections of [16, 1]) {
  const samples = await compare(calls, connections, connections === 16 ? WARM_UP : 1);
  const minimum = (name: string) => Math.min(...samples(name));
  const middle = (name: string) => median(samples(name));
  const rows = Array.from(bases, ([name, base]) => ({
    call: name,
    'CPU, µs': show(middle(name)),
    minimum: show(minimum(name)),
    of: base,
    'its µs': show(middle(base)),
    ratio: (middle(name) / middle(base)).toFixed(2),
    'of minima': (minimum(name) / minimum(base)).toFixed(2),
  }));
  printTable(
    `CPU of a call, medians of ${ROUNDS} rounds of ${COPIES} copies, connections: ${connections}`,
    rows,
  );
}
stop.abort();
