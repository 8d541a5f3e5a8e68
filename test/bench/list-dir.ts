/**
 * ListDir and Stat beside find(1) on the same trees, in one run: `node test/bench/list-dir.ts`.
 * Prints the time of each, their ratio, and the longest the event loop was held up.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { create, toBinary, toJsonString } from '@bufbuild/protobuf';
import { type EntryInfo, ListDirResponseSchema } from '../../src/gen/filesystem/filesystem_pb.js';
import { UserDatabase } from '../../src/os/users.ts';
import { entryToMessage } from '../../src/rpc/entry.ts';
import { listDir } from '../../src/services/filesystem/list-dir.ts';
import { stat } from '../../src/services/filesystem/stat.ts';

const ROUNDS = 5;
const FORMAT = '%f %y %p %s %m %M %u %g %T@ %l\n';
const users = new UserDatabase();

interface Measured {
  readonly ms: number;
  readonly blockedMs: number;
}

async function measure(work: () => Promise<unknown>): Promise<Measured> {
  const delay = monitorEventLoopDelay({ resolution: 1 });
  delay.enable();
  const start = performance.now();
  await work();
  const ms = performance.now() - start;
  delay.disable();
  return { ms, blockedMs: delay.max / 1e6 };
}

async function find(root: string): Promise<void> {
  const child = spawn('find', [root, '-mindepth', '1', '-printf', FORMAT], { stdio: 'ignore' });
  await once(child, 'exit');
}

async function list(root: string): Promise<EntryInfo[]> {
  const entries: EntryInfo[] = [];
  for await (const batch of listDir(root, 0xffff_ffff, users)) entries.push(...batch.map(entryToMessage));
  return entries;
}

const median = (values: number[]) => values.toSorted((a, b) => a - b)[values.length >> 1] ?? Number.NaN;

async function compare(name: string, root: string): Promise<void> {
  const [finds, lists]: [number[], Measured[]] = [[], []];
  let count = 0;
  for (let round = 0; round < ROUNDS; round++) {
    finds.push((await measure(() => find(root))).ms);
    lists.push(await measure(async () => (count = (await list(root)).length)));
  }
  const [findMs, listMs] = [median(finds), median(lists.map(({ ms }) => ms))];
  console.log(
    `${name.padEnd(44)} ${String(count).padStart(7)} entries  find ${findMs.toFixed(0).padStart(5)} ms  ` +
      `ListDir ${listMs.toFixed(0).padStart(5)} ms  ratio ${(listMs / findMs).toFixed(2)}  ` +
      `loop held up at most ${Math.max(...lists.map(({ blockedMs }) => blockedMs)).toFixed(0)} ms`,
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

async function encodings(root: string): Promise<void> {
  const response = create(ListDirResponseSchema, { entries: await list(root) });
  for (const [name, encode] of [
    ['binary', () => toBinary(ListDirResponseSchema, response).length],
    ['JSON', () => toJsonString(ListDirResponseSchema, response).length],
  ] as const) {
    const start = performance.now();
    const size = encode();
    const ms = performance.now() - start;
    console.log(`encoding the answer in one go, ${name}: ${ms.toFixed(0)} ms, ${(size / 1e6).toFixed(1)} MB`);
  }
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
    for (let index = 0; index < 20_000; index++) await stat(join(flat, `d0/file-${index}`), users);
  });
  console.log(`Stat, one after the other: ${((stats.ms / 20_000) * 1000).toFixed(0)} µs each`);
  await encodings(flat);
} finally {
  rmSync(scratch, { recursive: true });
}
