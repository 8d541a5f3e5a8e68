import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, readlinkSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Code, ConnectError } from '@connectrpc/connect';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { FileType } from '../../../src/gen/filesystem/filesystem_pb.js';
import { type Clients, connectTo, transcribe } from '../../support/clients/clients.ts';
import { get, post, uploadRaw } from '../../support/clients/files-client.ts';
import { hang, mountFuse } from '../../support/machine/mounts.ts';
import { threadsIn } from '../../support/machine/proc.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { until } from '../../support/until.ts';

/*
 * A FUSE server that stops answering: calls on its files are told so in time, all others go on, and when it answers
 * again nothing is left behind.
 */

/** More than a disk of a busy machine needs, because a file system that is only slow is told to be silent, too. */
const LIMIT_S = 4;

let daemon: TestDaemon;
let clients: Clients;
beforeAll(async () => {
  daemon = await startDaemon({
    args: [`--file-timeout=${LIMIT_S}`],
    env: { UV_THREADPOOL_SIZE: '16' },
  });
  clients = connectTo(daemon.url);
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});

/** The code of the error, and its message without the path; `ok` if there is none. */
async function verdict(call: Promise<unknown>): Promise<string> {
  try {
    const answer = await call;
    if (!(answer instanceof Response)) return 'ok';
    const text = await answer.text();
    return answer.ok ? 'ok' : `${answer.status} ${JSON.parse(text).message}`.replace(/'.*'/, 'PATH');
  } catch (error) {
    const { code, rawMessage } = ConnectError.from(error);
    return `${Code[code]} ${rawMessage}`.replace(/'.*'/, 'PATH');
  }
}

const SILENT = [
  'DeadlineExceeded file system does not answer: PATH',
  '504 file system does not answer: PATH',
];

const start = (directory: string, cmd: string) =>
  transcribe(clients.process.start({ process: { cmd, cwd: directory } }));

const compose = (sources: readonly string[], destination: string) =>
  fetch(`${daemon.url}/files/compose`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ source_paths: sources, destination }),
  });

/** Every kind of call, each on a mount that does not answer. */
const CALLS: Readonly<Record<string, (mounted: string, elsewhere: string, n: number) => Promise<unknown>>> = {
  'Stat of a file': (mounted) => clients.filesystem.stat({ path: join(mounted, 'file') }),
  'Stat of the mount': (mounted) => clients.filesystem.stat({ path: mounted }),
  'ListDir of the mount': (mounted) => clients.filesystem.listDir({ path: mounted }),
  MakeDir: (mounted, _, n) => clients.filesystem.makeDir({ path: join(mounted, `made-${n}/below`) }),
  'Move out': (mounted, elsewhere, n) =>
    clients.filesystem.move({ source: join(mounted, 'file'), destination: join(elsewhere, `moved-${n}`) }),
  'Move in': (mounted, elsewhere, n) =>
    clients.filesystem.move({ source: join(elsewhere, 'file'), destination: join(mounted, `moved-${n}`) }),
  Remove: (mounted) => clients.filesystem.remove({ path: join(mounted, 'directory') }),
  upload: (mounted, _, n) => uploadRaw(daemon, join(mounted, `new-${n}`), 'content'),
  'a large upload': (mounted, _, n) =>
    uploadRaw(daemon, join(mounted, `large-${n}`), Buffer.alloc(1_500_000)),
  overwrite: (mounted) => uploadRaw(daemon, join(mounted, 'file'), 'content', { 'x-metadata-a': 'b' }),
  download: (mounted) => get(daemon, join(mounted, 'file')),
  'compose from there': (mounted, elsewhere, n) =>
    compose([join(elsewhere, 'file'), join(mounted, 'file')], join(elsewhere, `composed-${n}`)),
  'compose to there': (mounted, elsewhere, n) =>
    compose([join(elsewhere, 'file')], join(mounted, `composed-${n}`)),
  watch: (mounted) => clients.filesystem.createWatcher({ path: mounted, allowNetworkMounts: true }),
  'the directory of a start': (mounted) => start(join(mounted, 'directory'), 'true'),
  'the program of a start': (mounted) => start('/', join(mounted, 'program')),
  'Stat of a link': (mounted, elsewhere) => {
    void mounted;
    return clients.filesystem.stat({ path: join(elsewhere, 'link') });
  },
  'download through a link': (_, elsewhere) => get(daemon, join(elsewhere, 'link')),
};

interface Scene {
  readonly mounted: string;
  readonly behind: string;
  readonly elsewhere: string;
}

function prepare(): Scene {
  const [mounted, behind] = mountFuse();
  const elsewhere = scratch();
  writeFileSync(join(behind, 'file'), 'content');
  writeFileSync(join(elsewhere, 'file'), 'content');
  mkdirSync(join(behind, 'directory'));
  symlinkSync(join(mounted, 'file'), join(elsewhere, 'link'));
  return { mounted, behind, elsewhere };
}

/** Files and directories below this one that the daemon has open. */
function descriptorsOn(directory: string): string[] {
  return readdirSync(`/proc/${daemon.pid}/fd`).flatMap((fd) => {
    try {
      const target = readlinkSync(`/proc/${daemon.pid}/fd/${fd}`);
      return target.startsWith(directory) ? [target] : [];
    } catch {
      return [];
    }
  });
}

/** Threads of the daemon that wait for a FUSE server. */
const waitingThreads = () => threadsIn(daemon.pid, /^request_wait_answer$/);

/** All that must go on meanwhile. */
async function expectTheRestToGoOn(elsewhere: string): Promise<void> {
  expect((await fetch(`${daemon.url}/health`)).status).toBe(204);
  expect((await fetch(`${daemon.url}/metrics`)).status).toBe(200);
  const path = join(elsewhere, 'other');
  expect(await verdict(uploadRaw(daemon, path, 'content', { 'x-metadata-a': 'b' }))).toBe('ok');
  expect(await verdict(uploadRaw(daemon, path, 'overwritten'))).toBe('ok');
  expect(await (await get(daemon, path)).text()).toBe('overwritten');
  expect((await clients.filesystem.stat({ path })).entry?.size).toBe(11n);
  expect(await verdict(clients.filesystem.makeDir({ path: join(elsewhere, 'made') }))).toBe('ok');
  expect(await verdict(clients.filesystem.remove({ path: join(elsewhere, 'made') }))).toBe('ok');
  expect((await start(elsewhere, 'pwd')).stdout.toString()).toBe(`${elsewhere}\n`);
  expect(await verdict(post(daemon, { path }, { 'content-type': 'text/plain' }, 'x'))).toMatch(/^400/);
  if (daemon.cgroupRoot) {
    expect((await fetch(`${daemon.url}/freeze`, { method: 'POST' })).status).toBe(204);
    expect((await fetch(`${daemon.url}/unfreeze`, { method: 'POST' })).status).toBe(204);
  }
}

describe('a mount that does not answer', () => {
  test.each(Object.keys(CALLS))(
    '%s: each of 100 calls is told so in time, all else goes on',
    async (name) => {
      const { mounted, behind, elsewhere } = prepare();
      await expectTheRestToGoOn(elsewhere);
      const goOn = hang(mounted);
      const calls = Array.from({ length: 100 }, (_, n) =>
        verdict(CALLS[name]?.(mounted, elsewhere, n) ?? raise()),
      );
      await expectTheRestToGoOn(elsewhere);
      // Its server is still stopped, so no call that waits for the file system ends.
      const verdicts = await Promise.all(calls);
      expect([...new Set(verdicts)]).toEqual([expect.toBeOneOf(SILENT)]);
      expect(waitingThreads()).toBeLessThanOrEqual(2);
      goOn();
      const answers = () => verdict(clients.filesystem.stat({ path: mounted }));
      await until('the mount answers', answers, (seen) => seen === 'ok');
      const left = () => [...descriptorsOn(mounted), ...descriptorsOn(elsewhere)];
      await until('no descriptor is left', left, (paths) => paths.length === 0);
      const temporary = () =>
        [behind, elsewhere]
          .flatMap((directory) => readdirSync(directory))
          .filter((file) => file.startsWith('.envd'));
      await until('no temporary file is left', temporary, (files) => files.length === 0);
      expect(await verdict(uploadRaw(daemon, join(mounted, 'after'), 'content'))).toBe('ok');
      expect(readFileSync(join(behind, 'after'), 'utf8')).toBe('content');
    },
  );
});

test('a listing shows a mount that does not answer, and a link to it, without a status', async () => {
  const { mounted, elsewhere } = prepare();
  hang(mounted);
  const around = await clients.filesystem.listDir({ path: join(mounted, '..'), depth: 3 });
  expect(around.entries).toMatchObject([{ name: 'mounted', type: FileType.UNSPECIFIED, mode: 0 }]);
  const links = await clients.filesystem.listDir({ path: elsewhere });
  const path = join(elsewhere, 'link');
  expect(links.entries).toMatchObject([
    { name: 'file', type: FileType.FILE, size: 7n },
    { name: 'link', type: FileType.UNSPECIFIED, permissions: 'Lrwxrwxrwx', symlinkTarget: path },
  ]);
});

function raise(): never {
  throw new Error('no such call');
}

test('a mount that hangs within another, and many that hang, leave threads for others', async () => {
  const scenes = Array.from({ length: 12 }, prepare);
  const inner = join(scenes[0]?.mounted ?? '', 'directory');
  execFileSync('bindfs', ['--no-allow-other', scenes[1]?.behind ?? '', inner]);
  onTestFinished(() => {
    execFileSync('umount', ['-l', inner]);
  });
  expect((await clients.filesystem.stat({ path: join(inner, 'file') })).entry?.size).toBe(7n);
  for (const { mounted } of scenes) hang(mounted);
  const nested = hang(inner);
  const paths = [...scenes.map(({ mounted }) => mounted), inner];
  const calls = paths.flatMap((mounted) =>
    Array.from({ length: 10 }, () => verdict(clients.filesystem.stat({ path: join(mounted, 'file') }))),
  );
  await expectTheRestToGoOn(scenes[0]?.elsewhere ?? '');
  expect([...new Set(await Promise.all(calls))]).toEqual([SILENT[0]]);
  expect(waitingThreads()).toBeOneOf([1, 2, 3]);
  nested();
});

test('the daemon stops while a mount hangs', async () => {
  const { mounted } = prepare();
  const stopped = await startDaemon({ args: ['--file-timeout=1'] });
  const goOn = hang(mounted);
  const { filesystem } = connectTo(stopped.url);
  const calls = Array.from({ length: 10 }, () =>
    filesystem.stat({ path: join(mounted, 'file') }).catch(() => {}),
  );
  await Promise.all(calls);
  // The mount still hangs.
  expect(await stopped.stop()).toBe(0);
  goOn();
  await stopped[Symbol.asyncDispose]();
});
