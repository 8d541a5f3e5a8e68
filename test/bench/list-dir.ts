/**
 * ListDir and Stat beside find(1) on the same trees, in one run: `npm run bench -- list-dir`.
 * Prints the time of each, their ratio, and the longest turn of the event loop.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { create, toBinary } from '@bufbuild/protobuf';
import { Quota } from '../../src/base/quota.ts';
import { unaryCodecOf } from '../../src/daemon/http/protocol/connect-unary.ts';
import { entryToMessage } from '../../src/daemon/http/rpc/entry.ts';
import { filesystemRpcs } from '../../src/daemon/http/rpc/filesystem.ts';
import { UserDatabase } from '../../src/daemon/linux/system/users.ts';
import { listDir } from '../../src/daemon/services/files/entries/list-dir.ts';
import { stat } from '../../src/daemon/services/files/entries/stat.ts';
import { Guest } from '../../src/daemon/services/guest/guest.ts';
import { WriteGate } from '../../src/daemon/services/pause/write-gate.ts';
import { ListDirRequestSchema, ListDirResponseSchema } from '../../src/gen/filesystem/filesystem_pb.js';
import { callOf, sharedLimits } from '../support/clients/calls.ts';
import { testLanes } from '../support/services/lanes.ts';

const ROUNDS = 5;
const FORMAT = '%f %y %p %s %m %M %u %g %T@ %l\n';
const entries = { users: new UserDatabase(), lanes: testLanes, metadataPrefix: 'user.svc.' };

interface Measured {
  readonly ms: number;
  /** The longest turn of the event loop, wall clock. */
  readonly turnMs: number;
  /** The same in CPU time, without the effect of other processes. */
  readonly turnCpuMs: number;
}

async function measure(work: () => Promise<unknown>): Promise<Measured> {
  let [turnMs, turnCpuMs, running] = [0, 0, true];
  const cpuMs = () => {
    const { user, system } = process.threadCpuUsage();
    return (user + system) / 1000;
  };
  let [last, lastCpu] = [performance.now(), cpuMs()];
  const turn = () => {
    const [now, cpu] = [performance.now(), cpuMs()];
    turnMs = Math.max(turnMs, now - last);
    turnCpuMs = Math.max(turnCpuMs, cpu - lastCpu);
    [last, lastCpu] = [now, cpu];
    if (running) setTimeout(turn, 1);
  };
  turn();
  const start = performance.now();
  await work();
  const ms = performance.now() - start;
  turn();
  running = false;
  return { ms, turnMs, turnCpuMs };
}

async function find(root: string): Promise<void> {
  const child = spawn('find', [root, '-mindepth', '1', '-printf', FORMAT], { stdio: 'ignore' });
  await once(child, 'exit');
}

const shared = sharedLimits(new Quota(Number.POSITIVE_INFINITY));

/** Lists and encodes in binary, as ListDir does; resolves with the number of entries. */
async function listAll(root: string): Promise<number> {
  let count = 0;
  for await (const batch of listDir(root, 0xffff_ffff, entries)) {
    const slice = create(ListDirResponseSchema, { entries: batch.map(entryToMessage) });
    toBinary(ListDirResponseSchema, slice);
    count += batch.length;
  }
  return count;
}

const median = (values: number[]) => values.toSorted((a, b) => a - b)[values.length >> 1] ?? Number.NaN;

async function compare(name: string, root: string): Promise<void> {
  const [finds, lists]: [number[], Measured[]] = [[], []];
  let count = 0;
  for (let round = 0; round < ROUNDS; round++) {
    finds.push((await measure(() => find(root))).ms);
    lists.push(
      await measure(async () => {
        count = await listAll(root);
      }),
    );
  }
  const [findMs, listMs] = [median(finds), median(lists.map(({ ms }) => ms))];
  console.log(
    `${name.padEnd(44)} ${String(count).padStart(7)} entries  find ${findMs.toFixed(0).padStart(5)} ms  ` +
      `ListDir ${listMs.toFixed(0).padStart(5)} ms  ratio ${(listMs / findMs).toFixed(2)}  ` +
      longestTurn(lists),
  );
}

/** Directories of `files` files each, in chains `deep` levels long. */
function makeTree(root: string, directories: number, deep: number, files: number): string {
  for (let made = 0, chain = root; made < directories; made++) {
    chain = join(made % deep === 0 ? root : chain, `d${made}`);
    mkdirSync(chain, { recursive: true });
    for (let file = 0; file < files; file++) writeFileSync(join(chain, `file-${file}`), '');
  }
  return root;
}

function longestTurn(rounds: readonly Measured[]): string {
  const longest = (key: 'turnMs' | 'turnCpuMs') => Math.max(...rounds.map((round) => round[key])).toFixed(0);
  return `longest turn of ${rounds.length}: ${longest('turnMs')} ms, ${longest('turnCpuMs')} ms of it computing`;
}

/** The whole call by curl, which discards the response. */
async function answers(root: string): Promise<void> {
  let round: Measured | undefined;
  const guest = new Guest(entries.users);
  const [, list] = filesystemRpcs({ guest, entries, gate: new WriteGate() });
  const server = createServer(async (request, response) => {
    const call = callOf(request, response, shared);
    const codec = unaryCodecOf(request.headers['content-type'] ?? '');
    if (list && codec) round = await measure(async () => list.serve?.(call, codec));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  for (const type of ['application/proto', 'application/json']) {
    for (const encoding of ['identity', 'gzip']) {
      const rounds: Measured[] = [];
      for (let n = 0; n < ROUNDS; n++) {
        const headers = [`content-type: ${type}`, `accept-encoding: ${encoding}`];
        const message = { path: root, depth: 0xffff_ffff };
        const body =
          type === 'application/json'
            ? JSON.stringify(message)
            : toBinary(ListDirRequestSchema, create(ListDirRequestSchema, message));
        const curl = spawn('curl', [
          '-s',
          '-o',
          '/dev/null',
          ...headers.flatMap((line) => ['-H', line]),
          ...['--data-binary', '@-'],
          url,
        ]);
        curl.stdin.end(body);
        await once(curl, 'exit');
        if (round) rounds.push(round);
      }
      const ms = median(rounds.map((each) => each.ms)).toFixed(0);
      console.log(`${type}, ${encoding}`.padEnd(30), `${ms} ms`.padStart(8), '', longestTurn(rounds));
    }
  }
  server.close();
}

const scratch = mkdtempSync(join(tmpdir(), 'envd-bench-'));
try {
  const flat = makeTree(join(scratch, 'flat'), 1, 1, 100_000);
  await compare('one directory', flat);
  await compare('1,000 directories of 100', makeTree(join(scratch, 'wide'), 1000, 1, 100));
  await compare(
    '10,000 directories, 50 levels, 2 files each',
    makeTree(join(scratch, 'deep'), 10_000, 50, 2),
  );
  const stats = await measure(async () => {
    for (let index = 0; index < 20_000; index++) await stat(join(flat, `d0/file-${index}`), entries);
  });
  console.log(`Stat, one after the other: ${((stats.ms / 20_000) * 1000).toFixed(0)} µs each`);
  await answers(flat);
} finally {
  rmSync(scratch, { recursive: true });
}
