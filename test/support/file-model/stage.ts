// A daemon, an empty tree, and two processes whose links in /proc lead into it.
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { closeSync, mkdirSync, openSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { TestDaemon } from '../programs/daemon.ts';
import { ADA, BOB } from './arbitraries.ts';
import { Calls } from './calls.ts';
import { Disk, type Helper, SECOND } from './disk.ts';
import { Garden } from './garden.ts';
import type { Stage } from './story.ts';
import { type Groups, newDirectory } from './tree.ts';

const GROUPS: Groups = new Map([
  [ADA, [ADA]],
  [BOB, [BOB]],
]);

/** Waits until it runs its program: before, its links in /proc are root's. */
async function sleeper(uid: number, cwd: string, descriptors: readonly number[]): Promise<ChildProcess> {
  const options = { cwd, uid, gid: uid, stdio: ['ignore', 'pipe', 'ignore', ...descriptors] as const };
  const child = spawn('sh', ['-c', 'echo; exec sleep infinity'], { ...options, stdio: [...options.stdio] });
  await new Promise((resolve) => child.stdout?.once('data', resolve));
  return child;
}

export async function setStage(daemon: TestDaemon): Promise<Stage & AsyncDisposable> {
  const base = join(daemon.scratch, 'model');
  mkdirSync(base);
  const { uid, gid, mode } = statSync('/');
  const root = newDirectory(null, { uid, gid, mode: mode & 0o7777 });
  const disk = new Disk({ root, groups: GROUPS }, base, [
    ['r', 0],
    ['s', ADA],
    ['t', BOB],
    [SECOND, 0],
  ]);
  execFileSync('mount', ['-t', 'tmpfs', 'tmpfs', join(base, SECOND)]);
  writeFileSync(join(base, 'held'), '');
  const descriptors = [openSync(join(base, 's'), 'r'), openSync(join(base, 'held'), 'r+')];
  const helpers = [
    await sleeper(0, join(base, 'r'), descriptors),
    await sleeper(ADA, join(base, 's'), descriptors.slice(0, 1)),
  ];
  for (const descriptor of descriptors) closeSync(descriptor);
  const [ofRoot = 0, ofAda = 0] = helpers.map(({ pid }) => pid);
  const fill = addProc(disk, daemon.pid, [
    { pid: ofRoot, uid: 0, links: { cwd: 'r', 'fd/3': 's', 'fd/4': 'held' } },
    { pid: ofAda, uid: ADA, links: { cwd: 's', 'fd/3': 's' } },
  ]);
  return {
    disk,
    garden: new Garden(disk, { root: ofRoot, ada: ofAda }, fill),
    callsOf: (user) => new Calls(daemon, user),
    async [Symbol.asyncDispose]() {
      for (const helper of helpers) helper.kill();
      execFileSync('umount', ['-l', join(base, SECOND)]);
    },
  };
}

/** Returns what puts /proc into the tree; to be called for each new tree. */
function addProc(disk: Disk, daemon: number, helpers: readonly Helper[]): () => void {
  const { root } = disk.world;
  const status = { uid: 0, gid: 0, mode: 0o555, isProc: true };
  return () => {
    const proc = newDirectory(root, status);
    const own = newDirectory(proc, status);
    root.entries.set('proc', proc);
    proc.entries.set(String(daemon), own);
    proc.entries.set('self', { kind: 'link', uid: 0, gid: 0, target: String(daemon), jump: own });
    own.entries.set('root', { kind: 'link', uid: 0, gid: 0, target: '/', jump: root });
    for (const helper of helpers) disk.addHelper(proc, helper);
  };
}
