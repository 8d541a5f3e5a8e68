/**
 * What the real daemon still holds after 10,000 short processes in a row and 200 at once: descriptors, cgroups,
 * zombies, memory. Then how much it grows while 1 GiB goes through a slow reader.
 * Run: `npm run bench -- leaks`; takes two minutes, since ended processes are remembered for 30 s.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { text } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import { create } from '@bufbuild/protobuf';
import { encodeFrame } from '../../src/daemon/http/protocol/codec.ts';
import { StartRequestSchema } from '../../src/gen/process/process_pb.js';
import { drain, startRequest } from '../support/clients/raw-client.ts';
import { startBenchDaemon } from './daemon.ts';
import { printTable, residentMib } from './figures.ts';

/** How long an ended process is kept, in milliseconds. */
const RETENTION_MS = 30_000;

const IN_A_ROW = Number(process.env.STARTS ?? 10_000);
const AT_ONCE = 200;
const SLOW_BYTES = 1024 ** 3;
const MIB = 1024 ** 2;

await using daemon = await startBenchDaemon();
const agent = new Agent({ keepAlive: true, maxSockets: AT_ONCE });

/** Starts `/bin/true` over a persistent connection. */
async function start(terminal: boolean): Promise<void> {
  const init = { process: { cmd: '/bin/true' }, ...(terminal && { pty: {} }) };
  const body = encodeFrame(StartRequestSchema, create(StartRequestSchema, init), 'json');
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  const headers = { 'content-type': 'application/connect+json', 'content-length': body.length };
  request(`${daemon.url}/process.Process/Start`, { method: 'POST', agent, headers }, (response) =>
    resolve(text(response)),
  )
    .on('error', reject)
    .end(body);
  const answer = await promise;
  if (!answer.includes('exit status 0')) throw new Error(answer);
}

function holds(when: string): Record<string, string> {
  const descriptors = readdirSync(`/proc/${daemon.pid}/fd`);
  const children = readFileSync(`/proc/${daemon.pid}/task/${daemon.pid}/children`, 'utf8')
    .split(' ')
    .filter(Boolean);
  const zombies = children.filter((pid) => / Z /.test(readFileSync(`/proc/${pid}/stat`, 'utf8')));
  const leaves = ['user', 'ptys'].flatMap((name) =>
    readdirSync(`${daemon.cgroupRoot}/${name}`, { withFileTypes: true }).filter((entry) =>
      entry.isDirectory(),
    ),
  );
  return {
    when,
    descriptors: String(descriptors.length),
    'cgroups of processes': String(leaves.length),
    children: String(children.length),
    zombies: String(zombies.length),
    'resident, MiB': residentMib(daemon.pid).toFixed(1),
  };
}

async function leaks(): Promise<void> {
  for (let count = 0; count < 500; count++) await start(count % 4 === 0);
  await Promise.all(Array.from({ length: AT_ONCE }, () => start(false)));
  await delay(RETENTION_MS + 1000);
  const rows = [holds('before')];
  for (let count = 0; count < IN_A_ROW; count++) await start(count % 4 === 0);
  rows.push(holds(`after ${IN_A_ROW.toLocaleString('en')} in a row`));
  for (let round = 0; round < 5; round++) {
    await Promise.all(Array.from({ length: AT_ONCE }, (_, index) => start(index % 4 === 0)));
  }
  rows.push(holds(`after 5 times ${AT_ONCE} at once`));
  await delay(RETENTION_MS + 1000);
  rows.push(holds('31 s later'));
  agent.destroy();
  await delay(200);
  rows.push(holds('without connections'));
  await fetch(`${daemon.url}/collapse`, { method: 'POST' });
  rows.push(holds('after /collapse, which collects'));
  printTable('What the daemon holds (one of four starts with a terminal)', rows);
}

/** Reads 10 MiB every 50 ms. */
async function readSlowly(bytes: number, onSample: () => void): Promise<number> {
  const config = { cmd: 'head', args: ['-c', String(bytes), '/dev/zero'] };
  let budget = 0;
  let resume = () => {};
  const timer = setInterval(() => {
    budget = 10 * MIB;
    resume();
    onSample();
  }, 50);
  const { bytes: read } = await drain(
    daemon.port,
    startRequest({ process: config }, 'binary'),
    (length, socket) => {
      resume = () => socket.resume();
      budget -= length;
      return budget > 0;
    },
  );
  clearInterval(timer);
  return read;
}

async function slowReader(): Promise<void> {
  // The first stream allocates what is kept for all.
  await readSlowly(64 * MIB, () => {});
  const before = residentMib(daemon.pid);
  let most = before;
  const began = performance.now();
  const bytes = await readSlowly(SLOW_BYTES, () => {
    most = Math.max(most, residentMib(daemon.pid));
  });
  const seconds = (performance.now() - began) / 1000;
  if (bytes < SLOW_BYTES) throw new Error(`${bytes} bytes`);
  const growth = most - before;
  const row = {
    '1 GiB through a slow reader': `${(bytes / MIB / seconds).toFixed(0)} MiB/s in bursts of 10 MiB`,
    'resident before, MiB': before.toFixed(1),
    'most, MiB': most.toFixed(1),
    'growth, MiB': growth.toFixed(1),
    goal: `16 ${growth < 16 ? 'met' : 'MISSED'}`,
  };
  printTable('A slow reader', [row]);
}

await slowReader();
await leaks();
