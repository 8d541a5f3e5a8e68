import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { connectTo } from '../../support/clients/clients.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { until } from '../../support/until.ts';

/* A client asks for much work on files, and leaves: the work ends soon after. */

let daemon: TestDaemon;
let directory: string;
beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});
beforeEach(() => {
  directory = scratch();
});

/** The daemon's CPU time in ticks: proc_pid_stat(5). */
function ticks(): number {
  const fields = readFileSync(`/proc/${daemon.pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
  return Number(fields[11]) + Number(fields[12]);
}

/** Whether none of the daemon's threads runs, waits for a processor or for a disk: proc_pid_stat(5). */
function isAsleep(): boolean {
  const tasks = `/proc/${daemon.pid}/task`;
  return readdirSync(tasks).every((id) => /\) S /.test(readFileSync(`${tasks}/${id}/stat`, 'utf8')));
}

/** Waits until the daemon does nothing any more, however busy the machine: what goes on for nobody has no event. */
async function atRest(): Promise<void> {
  const rests = async () => {
    const before = ticks();
    for (let look = 0; look < 30; look++) {
      if (!isAsleep()) return false;
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    return ticks() - before <= 1;
  };
  await until('the daemon is at rest', rests);
}

function fill(path: string, count: number): string[] {
  mkdirSync(path);
  const names = Array.from({ length: count }, (_, index) => `${path}/${index}`);
  for (const name of names) writeFileSync(name, 'content');
  return names;
}

test('compose leaves the sources, and makes nothing', async () => {
  const sources = fill(`${directory}/from`, 5000);
  const left = new AbortController();
  const call = fetch(`${daemon.url}/files/compose`, {
    method: 'POST',
    body: JSON.stringify({ source_paths: sources, destination: `${directory}/all` }),
    signal: left.signal,
  });
  setTimeout(() => left.abort(), 100);
  await expect(call).rejects.toThrow();
  await atRest();
  expect(existsSync(`${directory}/all`)).toBe(false);
  expect(readdirSync(`${directory}/from`)).toHaveLength(sources.length);
});

const DEEP = `
import os, sys
os.chdir(sys.argv[1])
for _ in range(int(sys.argv[2])):
    os.mkdir('d')
    os.chdir('d')
`;

test('Remove of a deep tree leaves the rest of it, and goes on when it is called again', async () => {
  mkdirSync(`${directory}/tree`);
  execFileSync('python3', ['-c', DEEP, `${directory}/tree`, '5000']);
  const { filesystem } = connectTo(daemon.url);
  const call = filesystem.remove({ path: `${directory}/tree` }, { timeoutMs: 50 });
  await expect(call).rejects.toThrow('deadline_exceeded');
  await atRest();
  expect(existsSync(`${directory}/tree`)).toBe(true);
  await filesystem.remove({ path: `${directory}/tree` }, { timeoutMs: 0 });
  expect(readdirSync(directory)).toEqual([]);
});

test('Move to another file system leaves the source, and no half copy', async () => {
  fill(`${directory}/tree`, 3000);
  const other = scratch('/dev/shm');
  const { filesystem } = connectTo(daemon.url);
  const paths = { source: `${directory}/tree`, destination: `${other}/tree` };
  await expect(filesystem.move(paths, { timeoutMs: 200 })).rejects.toThrow('deadline_exceeded');
  await atRest();
  expect(readdirSync(other)).toEqual([]);
  expect(readdirSync(`${directory}/tree`)).toHaveLength(3000);
});
