import { readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { until } from '../until.ts';
import { Guest } from './guest.ts';
import { Machine, type Snapshot } from './machine.ts';
import { run } from './tools.ts';

/** What happens between freeze and pause. */
export const PAUSES = ['as it is', 'collected', 'collapsed'] as const;
export type Pause = (typeof PAUSES)[number];

/** The owners, in the order of census.mjs. */
export const OWNERS = [
  'kernel',
  'page tables',
  'slab',
  'free by now',
  'page cache',
  'other processes',
  "the daemon's program",
  "the daemon's heap",
] as const;

/** The result of one restore. */
export interface Touched {
  /** Numbers of frames of 4 KiB. */
  readonly firstAnswer: number;
  readonly init: number;
  readonly firstCommand: number;
  /** Numbers of 2 MiB frames that were accessed at all. */
  readonly largeFirstAnswer: number;
  readonly largeFirstCommand: number;
  /** The first three by owner, in the order of OWNERS; null unless requested. */
  readonly owners: Readonly<Record<Stage, readonly number[]>> | null;
  /** Frames of 2 MiB until the first command, by owner: in which it has a frame that was accessed, and nobody else has one. */
  readonly largeOwners: { readonly any: readonly number[]; readonly alone: readonly number[] } | null;
}

/** What is counted up to. */
export type Stage = 'firstAnswer' | 'init' | 'firstCommand';

/** Without KVM a program may take a minute to start. */
const BOOT_MS = 180_000;
const SMALL_PER_LARGE = 512;
const THP = '/sys/kernel/mm/transparent_hugepage/enabled';

/** Compiles frames.c into `directory`; returns the path of the library. */
export function buildCounter(directory: string): string {
  const library = join(directory, 'frames.so');
  const source = fileURLToPath(new URL('frames.c', import.meta.url));
  run('cc', ['-O2', '-Wall', '-Wextra', '-Werror', '-shared', '-fPIC', '-pthread', '-o', library, source]);
  return library;
}

/** The token of the platform's `/init`, which the daemon has from the boot on. */
const TOKEN = 'secret';

/** A daemon that has done calls, output, files and directories, `rounds` times. */
export async function work(guest: Guest, rounds: number): Promise<void> {
  await guest.init({ accessToken: TOKEN, timestamp: new Date() });
  for (let round = 0; round < rounds; round += 1) {
    for (let call = 0; call < 20; call += 1) await guest.process.list({});
    await guest.call('POST', `/files?path=/run/file-${round % 4}`, 'x'.repeat(4 << 20));
    await (await guest.call('GET', `/files?path=/run/file-${round % 4}`)).arrayBuffer();
    await guest.filesystem.listDir({ path: '/usr/lib', depth: 2 });
    await guest.shell('seq 50000');
  }
}

/** Resumes `snapshot` in `directory`, and pauses it again as the platform does. */
export async function pauseAgain(snapshot: Snapshot, directory: string, pause: Pause): Promise<Snapshot> {
  await using machine = await Machine.fork(snapshot, directory);
  await machine.answers();
  const guest = new Guest(machine.url, TOKEN);
  // Where huge pages are disabled, a collapse only collects garbage and trims the heap.
  await guest.shell(`echo ${pause === 'collapsed' ? 'always' : 'never'} >${THP}`);
  await guest.call('POST', '/freeze?maxWaitMs=60000');
  if (pause !== 'as it is') {
    const response = await guest.call('POST', '/collapse');
    if (response.status !== 200) throw new Error(`/collapse answered ${response.status}`);
  }
  return await machine.snapshot();
}

/** Resumes `snapshot` in `directory`, puts least-server.mjs in the place of the daemon, and pauses it as the daemon is paused. */
export async function pauseLeast(snapshot: Snapshot, directory: string): Promise<Snapshot> {
  await using machine = await Machine.fork(snapshot, directory);
  await machine.answers();
  const guest = new Guest(machine.url, TOKEN);
  for (const name of ['least-server.mjs', 'census.mjs']) {
    const program = readFileSync(new URL(name, import.meta.url), 'utf8');
    await guest.call('POST', `/files?path=/run/${name}`, program);
  }
  const node = '/opt/envd/lib/envd --max-semi-space-size=2 --no-parallel-scavenge --expose-gc';
  const replace = `systemctl stop envd; exec ${node} /run/least-server.mjs`;
  await guest.system(`systemd-run --quiet --collect --setenv=UV_THREADPOOL_SIZE=16 sh -c '${replace}'`);
  const pid = () => guest.call('GET', '/pid').then((answer) => (answer.ok ? answer.text() : null));
  await until('the least server answers', () => pid().catch(() => null), Boolean, BOOT_MS);
  const response = await guest.call('POST', '/collapse', {});
  if (response.status !== 204) throw new Error(`/collapse answered ${response.status}`);
  return await machine.snapshot();
}

/** What is asked of the daemon, or of least-server.mjs, after a restore. */
export interface Subject {
  command(guest: Guest): Promise<unknown>;
  /** The owner of each frame, by census.mjs. */
  census(guest: Guest): Promise<Uint8Array>;
}

export const DAEMON: Subject = { command: (guest) => guest.shell('true'), census };

export const LEAST: Subject = {
  command: (guest) => startByLeast(guest, 'true'),
  async census(guest) {
    const pid = await (await guest.call('GET', '/pid')).text();
    await startByLeast(guest, `/opt/envd/lib/envd /run/census.mjs ${pid} /run/census`);
    return await (await guest.call('GET', '/census')).bytes();
  },
};

async function startByLeast(guest: Guest, command: string): Promise<void> {
  const output = await (await guest.call('POST', '/start', command)).text();
  if (!output.endsWith('\n0')) throw new Error(`'${command}' failed: ${output}`);
}

/** Restores `snapshot` once and counts the accessed frames; with `owners`, also by owner. */
export async function measure(
  snapshot: Snapshot,
  library: string,
  owners = false,
  subject = DAEMON,
): Promise<Touched> {
  const file = join(snapshot.directory, 'touched');
  const env = {
    LD_PRELOAD: library,
    ENVD_FRAMES_MEMORY: join(snapshot.directory, 'memory'),
    ENVD_FRAMES_TOUCHED: file,
  };
  rmSync(file, { force: true });
  await using machine = await Machine.restore(snapshot, env);
  await machine.answers();
  const first = readFileSync(file);
  const guest = new Guest(machine.url);
  await guest.init({ accessToken: TOKEN, timestamp: new Date() });
  const init = readFileSync(file);
  await subject.command(guest);
  const command = readFileSync(file);
  const ownerOf = owners ? await subject.census(guest) : null;
  return {
    firstAnswer: count(first),
    init: count(init),
    firstCommand: count(command),
    largeFirstAnswer: countLarge(first),
    largeFirstCommand: countLarge(command),
    owners: ownerOf && {
      firstAnswer: byOwner(first, ownerOf),
      init: byOwner(init, ownerOf),
      firstCommand: byOwner(command, ownerOf),
    },
    largeOwners: ownerOf && largeByOwner(command, ownerOf),
  };
}

/** The owner of each frame; frames do not move, so it is still the one at the time of the access. */
async function census(guest: Guest): Promise<Uint8Array> {
  const program = readFileSync(new URL('census.mjs', import.meta.url), 'utf8');
  await guest.call('POST', '/files?path=/run/census.mjs', program);
  await guest.shell(`/opt/envd/lib/envd /run/census.mjs ${await guest.mainPid()} /run/census`);
  return await (await guest.call('GET', '/files?path=/run/census')).bytes();
}

function count(touched: Uint8Array): number {
  return touched.reduce((sum, frame) => sum + frame, 0);
}

function countLarge(touched: Uint8Array): number {
  const large = new Set<number>();
  touched.forEach((frame, index) => {
    if (frame) large.add(Math.floor(index / SMALL_PER_LARGE));
  });
  return large.size;
}

function byOwner(touched: Uint8Array, owners: Uint8Array): number[] {
  const counts = OWNERS.map(() => 0);
  touched.forEach((frame, index) => {
    const owner = owners[index] ?? 0;
    if (frame) counts[owner] = (counts[owner] ?? 0) + 1;
  });
  return counts;
}

function largeByOwner(touched: Uint8Array, owners: Uint8Array): { any: number[]; alone: number[] } {
  const ownersOf = new Map<number, Set<number>>();
  touched.forEach((frame, index) => {
    if (!frame) return;
    const large = Math.floor(index / SMALL_PER_LARGE);
    const known = ownersOf.get(large) ?? new Set();
    ownersOf.set(large, known.add(owners[index] ?? 0));
  });
  const all = [...ownersOf.values()];
  const any = OWNERS.map((_, owner) => all.filter((found) => found.has(owner)).length);
  const alone = OWNERS.map((_, owner) => all.filter((found) => found.has(owner) && found.size === 1).length);
  return { any, alone };
}
