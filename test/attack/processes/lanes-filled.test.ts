import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { byTag, connectTo, transcribe } from '../../support/clients/clients.ts';
import {
  filePart,
  MULTIPART,
  multipartBody,
  post as postFile,
  uploadRaw,
} from '../../support/clients/files-client.ts';
import { loopMount } from '../../support/machine/cgroups.ts';
import { hang, mountFuse } from '../../support/machine/mounts.ts';
import { needs } from '../../support/machine/needs.ts';
import { threadsIn } from '../../support/machine/proc.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { until } from '../../support/until.ts';

/*
 * Calls of the workload fill everything that is bounded: threads by file systems that do not answer, streams, processes,
 * request bodies. What the platform needs answers all the same: health, init, freeze and thaw, signals, and the stop.
 */

const TOKEN = 't0ken';
const headers = { 'x-access-token': TOKEN };
/** Of 16 threads, those that files may take in all, and that the calls below take at least: docs/decisions/007-lanes.md. */
const MOST_THREADS = 13;
const LEAST_THREADS = 8;
const CALLS = 24;
const STREAMS = 8;
const PROCESSES = 12;
/** More than any limit on bodies in flight, and than the descriptors of a small pool. */
const BODIES = 200;

async function setUp() {
  needs('root', 'cgroup v2');
  const filesystem = loopMount('16M');
  const [mounted] = mountFuse();
  const daemon = await startDaemon({
    args: ['--file-timeout=600', `--max-streams=${STREAMS}`, `--max-processes=${PROCESSES}`],
    env: { UV_THREADPOOL_SIZE: '16' },
  });
  onTestFinished(async () => {
    filesystem.thaw();
    await daemon[Symbol.asyncDispose]();
    filesystem[Symbol.dispose]();
  });
  expect((await init(daemon, {})).status).toBe(204);
  return { daemon, filesystem, mounted };
}

const init = (daemon: TestDaemon, more: object) =>
  fetch(`${daemon.url}/init`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ accessToken: TOKEN, timestamp: new Date(), ...more }),
  });

const post = (daemon: TestDaemon, path: string) => fetch(daemon.url + path, { method: 'POST', headers });

/** A request whose body never ends. */
async function unended(daemon: TestDaemon, path: string, type: string): Promise<void> {
  const socket = connect(daemon.port, '127.0.0.1');
  onTestFinished(() => void socket.destroy());
  socket.on('error', () => {}).resume();
  await once(socket, 'connect');
  const head = `POST ${path} HTTP/1.1\r\nhost: a\r\nx-access-token: ${TOKEN}\r\ncontent-type: ${type}\r\n`;
  socket.write(`${head}content-length: 1000\r\n\r\n{"`);
}

async function fillBodies(daemon: TestDaemon): Promise<void> {
  const kinds = [
    ['/init', 'application/json'],
    ['/files/compose', 'application/json'],
    ['/filesystem.Filesystem/Stat', 'application/json'],
    ['/filesystem.Filesystem/Stat', 'application/grpc-web+proto'],
    ['/process.Process/SendSignal', 'application/json'],
    [`/files?path=${daemon.scratch}/unended`, 'application/octet-stream'],
  ] as const;
  for (const [path, type] of kinds)
    await Promise.all(Array.from({ length: BODIES }, () => unended(daemon, path, type)));
}

/**
 * Calls for all lanes, more than there are threads: each kind waits for a file system that does not answer. Returns how many
 * still wait.
 */
function fillThreads(daemon: TestDaemon, frozen: string, mounted: string): () => number {
  const { filesystem } = connectTo(daemon.url);
  let waiting = 0;
  const large = Buffer.alloc(1_500_000);
  const parts = multipartBody([filePart('part', 'content')]);
  for (let n = 0; n < CALLS; n++) {
    const at = (name: string) => join(frozen, `directory-${n}`, name);
    const calls = [
      filesystem.stat({ path: join(mounted, `${n}`) }, { headers }),
      filesystem.remove({ path: at('tree') }, { headers }),
      uploadRaw(daemon, at('old'), 'content', { ...headers, 'x-metadata-a': 'b' }),
      uploadRaw(daemon, at('new'), 'content', headers),
      uploadRaw(daemon, at('large'), large, headers),
      postFile(daemon, { path: at('part') }, { ...MULTIPART, ...headers }, parts),
      filesystem.makeDir({ path: at('made/below') }, { headers }),
      filesystem.move({ source: at('source'), destination: at('moved') }, { headers }),
    ];
    waiting += calls.length;
    for (const call of calls) void Promise.allSettled([call]).then(() => waiting--);
  }
  return () => waiting;
}

const startOf = (tag: string) => ({ process: { cmd: 'sleep', args: ['1000'] }, tag });

/** As many processes and streams as are allowed, and a start that is refused. */
async function fillProcesses(daemon: TestDaemon): Promise<void> {
  const { process } = connectTo(daemon.url);
  for (let n = 0; n < PROCESSES; n++) {
    const client = new AbortController();
    const start = process.start(startOf(`sleeper-${n}`), { headers, signal: client.signal });
    await start[Symbol.asyncIterator]().next();
    if (n >= STREAMS - 1) client.abort();
  }
  const refused = () =>
    transcribe(process.start(startOf('more'), { headers })).catch((error: unknown) => String(error));
  await until('processes are refused', refused, (error) => String(error).includes('(--max-processes)'));
  void transcribe(process.connect({ process: byTag('sleeper-0') }, { headers })).catch(() => {});
  await until('streams are refused', refused, (error) => String(error).includes('(--max-streams)'));
}

test('health, init, freeze, thaw, signals and the stop answer when all lanes are full', async () => {
  const { daemon, filesystem, mounted } = await setUp();
  for (let n = 0; n < CALLS; n++) {
    // Of their own, because a directory has a lane, too.
    const directory = join(filesystem.path, `directory-${n}`);
    mkdirSync(join(directory, 'tree'), { recursive: true });
    for (const name of ['old', 'source']) writeFileSync(join(directory, name), 'x');
  }
  // First, because a start looks for its program in the lanes of files.
  await fillProcesses(daemon);
  hang(mounted);
  filesystem.freeze();
  const waiting = fillThreads(daemon, filesystem.path, mounted);
  await fillBodies(daemon);
  const held = () => threadsIn(daemon.pid, /request_wait_answer|percpu_rwsem/);
  await until('the lanes are full', held, (threads) => threads >= LEAST_THREADS);

  const { process } = connectTo(daemon.url);
  for (let round = 0; round < 3; round++) {
    expect((await fetch(`${daemon.url}/health`)).status).toBe(204);
    expect((await init(daemon, { envVars: { ROUND: `${round}` }, defaultUser: 'root' })).status).toBe(204);
    const frozen = await (await post(daemon, '/freeze?maxWaitMs=10000')).json();
    expect(frozen).toMatchObject({ requested: 2, frozen: 2 });
    expect((await post(daemon, '/unfreeze')).status).toBe(204);
    expect((await post(daemon, '/freeze?mode=legacy')).status).toBe(204);
    expect((await init(daemon, {})).status).toBe(204);
    await process.sendSignal({ process: byTag(`sleeper-${round}`), signal: 9 }, { headers });
    expect((await fetch(`${daemon.url}/metrics`, { headers })).status).toBe(200);
    expect(held()).toBeGreaterThanOrEqual(LEAST_THREADS);
    expect(held()).toBeLessThanOrEqual(MOST_THREADS);
  }
  expect(waiting()).toBe(CALLS * 8);
  const { processes } = await process.list({}, { headers });
  expect(processes.map(({ tag }) => tag)).toEqual(
    Array.from({ length: PROCESSES - 3 }, (_, n) => `sleeper-${n + 3}`),
  );

  void daemon.stop();
  const end = await until('it has stopped', () =>
    daemon.log.find(({ msg }) => /^stop(ped| )/.test(`${msg}`)),
  );
  expect(end, JSON.stringify(end)).toMatchObject({ msg: 'stopped' });
  filesystem.thaw();
  expect((await daemon.exited).code).toBe(0);
});
