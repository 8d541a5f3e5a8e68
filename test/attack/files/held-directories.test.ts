import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Code, ConnectError } from '@connectrpc/connect';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connectTo, transcribe } from '../../support/clients/clients.ts';
import { get, uploadRaw } from '../../support/clients/files-client.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { isWaiting, stuckCall } from '../../support/machine/stuck-call.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { until } from '../../support/until.ts';

/*
 * getdents64(2) holds the lock of the directory while it writes to the caller's memory. When that is a mapping of a file on
 * a FUSE mount whose server does not answer, the lock is held for as long as the attacker likes: whoever makes a name
 * in the directory waits, and behind that, whoever looks up one that the kernel does not know. Any user can do that to
 * any directory that he may read.
 */

/** More than a disk of a busy machine needs. */
const LIMIT_S = 4;

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon({
    args: [`--file-timeout=${LIMIT_S}`, `--start-timeout=${LIMIT_S}`],
    env: { UV_THREADPOOL_SIZE: '16' },
  });
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});

/** Holds the lock of `directory` until the result is called. */
function hold(directory: string): Promise<() => Promise<void>> {
  const open = `
directory = os.open(${JSON.stringify(directory)}, os.O_RDONLY)
SYS_getdents64 = {'x86_64': 217, 'aarch64': 61}[os.uname().machine]`;
  return stuckCall(open, 'libc.syscall(SYS_getdents64, directory, ctypes.c_void_p(page), 65536)');
}

/** Waits until a thread of the daemon waits for the lock. One that waits for a disk does not do so for as long. */
async function untilItWaits(): Promise<void> {
  const tasks = `/proc/${daemon.pid}/task`;
  let seen = 0;
  await until('it waits', () => {
    seen = readdirSync(tasks).some((task) => isWaiting(join(tasks, task))) ? seen + 1 : 0;
    return seen > 50;
  });
}

const SILENT = /^(DeadlineExceeded|504) file system does not answer: '/;

/** The code of the error and its message; `ok` if there is none. */
async function verdict(call: Promise<unknown>): Promise<string> {
  try {
    const answer = await call;
    if (!(answer instanceof Response) || answer.ok) return 'ok';
    const { code, message } = (await answer.json()) as { code: number; message: string };
    return `${code} ${message}`;
  } catch (error) {
    const { code, rawMessage } = ConnectError.from(error);
    return `${Code[code]} ${rawMessage}`;
  }
}

async function expectTheRestToGoOn(directory: string): Promise<void> {
  const { filesystem } = connectTo(daemon.url);
  const path = join(directory, 'other');
  expect((await fetch(`${daemon.url}/metrics`)).status).toBe(200);
  expect((await uploadRaw(daemon, path, 'content')).status).toBe(200);
  expect((await uploadRaw(daemon, path, 'content 2')).status).toBe(200);
  expect((await filesystem.stat({ path })).entry?.size).toBe(9n);
  expect(await (await get(daemon, path)).text()).toBe('content 2');
  await filesystem.move({ source: path, destination: `${path}-2` });
  await filesystem.remove({ path: `${path}-2` });
}

/** Calls that make a name in the directory, or look one up. */
const CALLS: Readonly<Record<string, (directory: string, index: number) => Promise<unknown>>> = {
  'new files': (directory, index) => uploadRaw(daemon, join(directory, `file-${index}`), 'x'),
  'large new files': (directory, index) =>
    uploadRaw(daemon, join(directory, `large-${index}`), Buffer.alloc(300_000)),
  'files in new directories': (directory, index) =>
    uploadRaw(daemon, join(directory, `parent-${index}/file`), 'x'),
  MakeDir: (directory, index) =>
    connectTo(daemon.url).filesystem.makeDir({ path: join(directory, `directory-${index}`) }),
  Stat: (directory, index) =>
    connectTo(daemon.url).filesystem.stat({ path: join(directory, `unknown-${index}`) }),
  download: (directory, index) => get(daemon, join(directory, `unknown-${index}`)),
  'ListDir of what is not there': (directory, index) =>
    connectTo(daemon.url).filesystem.listDir({ path: join(directory, `unknown-${index}`) }),
  watch: (directory, index) =>
    connectTo(daemon.url).filesystem.createWatcher({ path: join(directory, `unknown-${index}`) }),
  'a start in it': (directory, index) =>
    transcribe(
      connectTo(daemon.url).process.start({
        process: { cmd: '/bin/true', cwd: join(directory, `unknown-${index}`) },
      }),
    ),
  'a start of what is in it': (directory, index) =>
    transcribe(
      connectTo(daemon.url).process.start({ process: { cmd: join(directory, `unknown-${index}`) } }),
    ),
  compose: (directory, index) =>
    fetch(`${daemon.url}/files/compose`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        source_paths: [join(directory, 'there')],
        destination: join(directory, `whole-${index}`),
      }),
    }),
  'an archive': (directory) =>
    fetch(`${daemon.url}/files?path=${encodeURIComponent(directory)}`, {
      method: 'POST',
      headers: { 'content-type': 'application/x-tar' },
      body: execFileSync('tar', ['c', '-C', '/etc', 'hostname', 'passwd']),
    }),
  Move: (directory, index) =>
    connectTo(daemon.url).filesystem.move({
      source: join(directory, 'there'),
      destination: join(directory, `moved-${index}`),
    }),
  Remove: (directory, index) =>
    connectTo(daemon.url).filesystem.remove({ path: join(directory, `old-${index}`) }),
};

test.each(Object.keys(CALLS))(
  '%s in a directory that is locked: they end in time, all others go on',
  async (name) => {
    const top = scratch();
    const [held, free] = [join(top, 'held'), join(top, 'free')];
    mkdirSync(held);
    mkdirSync(free);
    for (let index = 0; index < 24; index++) writeFileSync(join(held, `old-${index}`), '');
    writeFileSync(join(held, 'there'), '');
    const release = await hold(held);
    // Makes look-ups wait, too.
    const writer = verdict(uploadRaw(daemon, join(held, 'first'), 'x'));
    await untilItWaits();
    const calls = Array.from({ length: 24 }, (_, index) => verdict(CALLS[name]?.(held, index) ?? writer));
    await expectTheRestToGoOn(scratch());
    // Of a tree, 6 threads are taken at most: by one directory no more than 3.
    if (name !== 'files in new directories') await expectTheRestToGoOn(free);
    // Of archives, 16 at a time are unpacked.
    const crowded = name === 'an archive' ? /^429 more than 16 archives/ : SILENT;
    for (const each of await Promise.all([writer, ...calls]))
      expect(each).toMatch(crowded.test(each) ? crowded : SILENT);
    await release();
    await expectTheRestToGoOn(held);
  },
);

test('a look-up that is stuck behind a link holds up none of those that are asked for together with it', async () => {
  const top = scratch();
  const [held, free] = [join(top, 'held'), join(top, 'free')];
  mkdirSync(held);
  mkdirSync(free);
  symlinkSync(join(held, 'unknown'), join(free, 'link'));
  const names = Array.from({ length: 40 }, (_, index) => join(free, `file-${index}`));
  for (const path of names) writeFileSync(path, '');
  const release = await hold(held);
  const writer = verdict(uploadRaw(daemon, join(held, 'first'), 'x'));
  await untilItWaits();
  const { filesystem } = connectTo(daemon.url);
  const ask = (paths: readonly string[]) => paths.map((path) => verdict(filesystem.stat({ path })));
  // Opens the connections, so that the calls below arrive together.
  await Promise.all(ask(names));
  const before = ask(names.slice(0, 20));
  const stuck = verdict(filesystem.stat({ path: join(free, 'link') }));
  const others = [...before, ...ask(names.slice(20))];
  expect(new Set(await Promise.all(others))).toEqual(new Set(['ok']));
  expect(await stuck).toMatch(SILENT);
  expect(await writer).toMatch(SILENT);
  await release();
});
