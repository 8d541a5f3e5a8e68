import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { holder } from '../../support/attackers/holder.ts';
import { connectTo } from '../../support/clients/clients.ts';
import { get, uploadRaw } from '../../support/clients/files-client.ts';
import { mountTmpfs } from '../../support/machine/mounts.ts';
import { threadsIn } from '../../support/machine/proc.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { stuckCall } from '../../support/machine/stuck-call.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';

/*
 * Processes of the guest that hold a lease on a file, or keep the lock of its inode: calls on it wait or are refused in
 * time, all others go on.
 */

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon({ args: ['--file-timeout=4'], env: { UV_THREADPOOL_SIZE: '16' } });
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});

/** Takes a lease on the file and does not give it back when it is asked to. */
const lease = (path: string, type: 'F_RDLCK' | 'F_WRLCK') =>
  holder(`
signal.signal(signal.SIGIO, signal.SIG_IGN)
file = os.open(${JSON.stringify(path)}, os.O_RDONLY if ${type === 'F_RDLCK' ? 'True' : 'False'} else os.O_RDWR)
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.${type})
print('held')
time.sleep(600)
`);

describe('a file with a lease', () => {
  const HELD = (path: string) => ({
    code: 504,
    message: `another process holds a lease on the file: '${path}'`,
  });

  test.each([
    ['download', (path: string) => get(daemon, path)],
    ['overwrite', (path: string) => uploadRaw(daemon, path, 'new')],
  ])('%s: each of 100 calls is refused in time, and all goes on when it is released', async (_, call) => {
    const path = join(scratch(), 'file');
    writeFileSync(path, 'old');
    const { release } = await lease(path, 'F_WRLCK');
    const answers = Array.from({ length: 100 }, () => call(path));
    await expectTheRestToGoOn();
    for (const answer of await Promise.all(answers)) {
      expect(answer.status).toBe(504);
      expect(await answer.json()).toEqual(HELD(path));
    }
    await release();
    expect((await call(path)).status).toBe(200);
  });

  test('that is released in time is written', async () => {
    const path = join(scratch(), 'file');
    writeFileSync(path, 'old');
    const { release } = await lease(path, 'F_RDLCK');
    const answer = uploadRaw(daemon, path, 'new');
    await release();
    expect((await answer).status).toBe(200);
    expect(readFileSync(path, 'utf8')).toBe('new');
  });
});

/** Keeps the lock of the file's inode, by a write(2) of a page that never comes. */
function lock(path: string): Promise<() => Promise<void>> {
  const open = `file = os.open(${JSON.stringify(path)}, os.O_WRONLY)`;
  return stuckCall(open, 'libc.write(file, ctypes.c_void_p(page), 65536)');
}

test('one locked file among many that are overwritten at once: the others are not held up', async () => {
  // Its call outlives the rounds, which a busy machine prolongs.
  await using patient = await startDaemon({
    args: ['--file-timeout=100'],
    env: { UV_THREADPOOL_SIZE: '16' },
  });
  const directory = mountTmpfs('8m');
  const paths = Array.from({ length: 48 }, (_, index) => join(directory, `file-${index}`));
  for (const path of paths) writeFileSync(path, 'old');
  const [locked = '', ...others] = paths;
  const release = await lock(locked);
  let isStuck = true;
  const first = uploadRaw(patient, locked, 'new').finally(() => {
    isStuck = false;
  });
  for (let round = 0; round < 5; round++) {
    const answers = await Promise.all(others.map((path) => uploadRaw(patient, path, `new ${round}`)));
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
    for (const path of others) expect(readFileSync(path, 'utf8')).toBe(`new ${round}`);
  }
  expect(isStuck).toBe(true);
  await release();
  expect((await first).status).toBe(200);
  expect(readFileSync(locked, 'utf8')).toBe('new');
});

/** Where a thread waits for the lock of an inode: the caller of the lock, or the lock. */
const LOCKED = /rwsem|xattr|llseek|chown|chmod|notify_change|truncate|fallocate/;

/** Writes large blocks to all files at once; each write(2) holds the lock of its inode for some 100 ms. */
const writer = (paths: readonly string[]) =>
  holder(`
block = b'x' * (64 << 20)
def write(path):
    while True:
        file = os.open(path, os.O_WRONLY)
        os.pwrite(file, block, 0)
        os.close(file)
for path in ${JSON.stringify(paths)}:
    threading.Thread(target=write, args=(path,), daemon=True).start()
print('writing')
time.sleep(600)
`);

async function expectTheRestToGoOn(): Promise<void> {
  const { filesystem } = connectTo(daemon.url);
  const path = join(scratch(), 'other');
  expect((await fetch(`${daemon.url}/health`)).status).toBe(204);
  expect((await fetch(`${daemon.url}/metrics`)).status).toBe(200);
  expect((await uploadRaw(daemon, path, 'content', { 'x-metadata-a': 'b' })).status).toBe(200);
  expect((await filesystem.stat({ path })).entry?.size).toBe(7n);
  expect(await (await get(daemon, path)).text()).toBe('content');
  if (!daemon.cgroupRoot) return;
  expect((await fetch(`${daemon.url}/freeze`, { method: 'POST' })).status).toBe(204);
  expect((await fetch(`${daemon.url}/unfreeze`, { method: 'POST' })).status).toBe(204);
}

test('files whose inodes are locked: 64 overwrites wait for them, and all else goes on', async () => {
  const directory = mountTmpfs('2g');
  const paths = Array.from({ length: 20 }, (_, index) => join(directory, `locked-${index}`));
  for (const path of paths) writeFileSync(path, '');
  const { release } = await writer(paths);
  let isOver = false;
  // There are 64 of them all the time, however fast the machine is.
  const calls = Array.from({ length: 64 }, async (_, index) => {
    const path = paths[index % paths.length] ?? '';
    const found: number[] = [];
    do {
      const answer = await uploadRaw(daemon, path, 'content', { 'x-metadata-a': String(index) });
      found.push(answer.status);
    } while (!isOver);
    return found;
  });
  const statuses = Promise.all(calls);
  statuses.catch(() => {}); // When an assertion below fails first.
  let most = 0;
  const sample = setInterval(() => {
    most = Math.max(most, threadsIn(daemon.pid, LOCKED));
  }, 5);
  for (let round = 0; round < 5; round++) await expectTheRestToGoOn();
  clearInterval(sample);
  // Samples include threads that only pass there, so the bound is that of all lanes: 13 of the 16 threads.
  expect(most).toBeGreaterThan(0);
  expect(most).toBeLessThanOrEqual(13);
  isOver = true;
  await release();
  const found = new Set((await statuses).flat());
  // On a busy machine some wait for as long as a file may take to answer.
  expect(found.has(200)).toBe(true);
  expect([...found].filter((status) => status !== 200 && status !== 504)).toEqual([]);
});
