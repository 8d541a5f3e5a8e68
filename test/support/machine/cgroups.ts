import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { findCgroupMount } from '../../../src/daemon/linux/cgroups/cgroup-mounts.ts';
import { Cgroup } from '../../../src/daemon/linux/cgroups/cgroup2.ts';
import { until } from '../until.ts';
import { needs } from './needs.ts';

let created = 0;

/** The cgroup v2 mount, which these tests need. */
export function cgroupMount(): string {
  needs('cgroup v2');
  return findCgroupMount() ?? '';
}

/** A cgroup for a test. Disposing of it kills all processes in and below it, and removes it. */
export function testCgroup(): Cgroup & Disposable {
  const cgroup = Cgroup.create(join(cgroupMount(), `envd-fixture-${process.pid}-${created++}`));
  return Object.assign(cgroup, { [Symbol.dispose]: () => removeTree(cgroup) });
}

function removeTree(cgroup: Cgroup): void {
  cgroup.kill();
  for (const child of cgroup.children()) removeTree(child);
  // A killed process leaves its cgroup a moment later.
  while (!cgroup.remove()) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
}

/** Starts a shell command in a cgroup; resolves when it is in there. */
export async function startIn(cgroup: Cgroup, command: string): Promise<ChildProcess> {
  const script = `echo $$ > '${cgroup.path}/cgroup.procs' && echo ready && exec sh -c "$1"`;
  const child = spawn('sh', ['-c', script, 'sh', command], { stdio: ['ignore', 'pipe', 'inherit'] });
  await once(child.stdout, 'data');
  return child;
}

/** Waits until a process sleeps uninterruptibly: state D of proc_pid_status(5). */
export async function untilUninterruptible(pid: number | undefined): Promise<void> {
  await until(`process ${pid} sleeps in the kernel`, () =>
    /^State:\tD/m.test(readFileSync(`/proc/${pid}/status`, 'utf8')),
  );
}

/** A process that sleeps uninterruptibly, so that it cannot be frozen: in a write to a frozen file system. */
export interface BlockedWriter extends Disposable {
  readonly pid: number;
  unblock(): void;
}

export async function blockedWriter(cgroup: Cgroup): Promise<BlockedWriter> {
  const filesystem = loopMount();
  try {
    filesystem.freeze();
    const { pid = 0 } = await startIn(cgroup, `echo > ${filesystem.path}/file; exec sleep 1000`);
    await untilUninterruptible(pid);
    return { pid, unblock: () => filesystem.thaw(), [Symbol.dispose]: () => filesystem[Symbol.dispose]() };
  } catch (error) {
    filesystem[Symbol.dispose]();
    throw error;
  }
}

/** A counting process, seen from outside. */
export interface Counter {
  readonly pid: number;
  value(): number;
  /** Resolves once the count has increased, however long that takes. */
  advances(): Promise<void>;
  /** Whether the count stays the same for a while. */
  stands(): Promise<boolean>;
}

export async function countIn(cgroup: Cgroup): Promise<Counter> {
  const child = await startIn(cgroup, 'i=0; while :; do i=$((i+1)); printf "" > /dev/null; done');
  const pid = child.pid ?? 0;
  // User time in ticks of 10 ms, field 14: visible without the process's cooperation.
  const value = () => Number(readFileSync(`/proc/${pid}/stat`, 'utf8').split(' ')[13]);
  const advances = async () => {
    const before = value();
    await until('the count goes up', () => value() !== before);
  };
  await advances();
  const stands = async () => {
    const before = value();
    // Several ticks of that clock: no event tells that a process does not run.
    await sleep(60);
    return value() === before;
  };
  return { pid, value, advances, stands };
}

/** A file system on a loop device, which can be frozen so that writers sleep uninterruptibly. */
export function loopMount(size = '2M'): Disposable & { readonly path: string; freeze(): void; thaw(): void } {
  needs('loop devices');
  const directory = mkdtempSync(join(tmpdir(), 'envd-loop-'));
  const image = join(directory, 'image');
  const path = join(directory, 'mount');
  const make = 'truncate -s "$2" "$0" && mkfs.ext2 -q "$0" && mkdir "$1"';
  execFileSync('sh', ['-c', make, image, path, size]);
  execFileSync('mount', ['-o', 'loop', image, path]);
  const freeze = () => void execFileSync('fsfreeze', ['--freeze', path]);
  // Also after a failed test: no process is left asleep in a write.
  const thaw = () => void spawnSync('fsfreeze', ['--unfreeze', path]);
  const dispose = () => {
    thaw();
    execFileSync('umount', ['--lazy', path]);
    rmSync(directory, { recursive: true });
  };
  return { path, freeze, thaw, [Symbol.dispose]: dispose };
}
