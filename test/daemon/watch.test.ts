import { execFile, execFileSync } from 'node:child_process';
import { mkdirSync, renameSync, rmSync, unlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { isDeepStrictEqual, promisify } from 'node:util';
import { Code } from '@connectrpc/connect';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { WatchEvent, WatchEventType } from '../../src/daemon/services/watch/local/event.ts';
import { EventType, type FilesystemEvent, FileType } from '../../src/gen/filesystem/filesystem_pb.js';
import { type Clients, connectTo } from '../support/clients/clients.ts';
import { needs } from '../support/machine/needs.ts';
import { startDaemon, type TestDaemon } from '../support/programs/daemon.ts';
import { pathsOf, Replay } from '../support/services/replay.ts';

const run = promisify(execFile);
const TYPE: Readonly<Record<number, WatchEventType>> = {
  [EventType.UNSPECIFIED]: 'rescan',
  [EventType.CREATE]: 'create',
  [EventType.WRITE]: 'write',
  [EventType.REMOVE]: 'remove',
  [EventType.RENAME]: 'rename',
  [EventType.CHMOD]: 'chmod',
};

let daemon: TestDaemon;
let count = 0;
beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(() => daemon[Symbol.asyncDispose]());

function newDirectory(): string {
  const path = join(daemon.scratch, `${++count}`);
  mkdirSync(path);
  return path;
}

const brief = (events: readonly FilesystemEvent[]) => events.map(({ type, name }) => `${TYPE[type]} ${name}`);

describe.each(['json', 'binary'] as const)('a polled watch, %s', (codec) => {
  let client: Clients['filesystem'];
  beforeAll(() => {
    client = connectTo(daemon.url, codec).filesystem;
  });

  /** All events so far: those before that of a marker file. */
  async function upToNow(watcherId: string, path: string): Promise<FilesystemEvent[]> {
    const mark = `mark-${++count}`;
    mkdirSync(join(path, mark));
    const seen: FilesystemEvent[] = [];
    while (!seen.some(({ name }) => name === mark)) {
      seen.push(...(await client.getWatcherEvents({ watcherId })).events);
    }
    return seen.filter(({ name }) => !name.startsWith('mark-'));
  }

  test.each([
    { recursive: false, includeEntry: false },
    { recursive: false, includeEntry: true },
    { recursive: true, includeEntry: false },
    { recursive: true, includeEntry: true },
  ])('returns its events: recursive $recursive, with entries $includeEntry', async (options) => {
    const path = newDirectory();
    mkdirSync(join(path, 'below'));
    const { watcherId } = await client.createWatcher({ path, ...options });
    writeFileSync(join(path, 'file'), 'text');
    writeFileSync(join(path, 'below/deep'), '');
    const events = await upToNow(watcherId, path);
    expect(brief(events)).toEqual([
      'create file',
      'write file',
      ...(options.recursive ? ['create below/deep'] : []),
    ]);
    for (const { name, entry } of events) {
      if (!options.includeEntry) expect(entry).toBeUndefined();
      else expect(entry).toMatchObject({ path: join(path, name), type: FileType.FILE, owner: 'root' });
    }
    renameSync(join(path, 'file'), join(path, 'other'));
    unlinkSync(join(path, 'other'));
    expect(brief(await upToNow(watcherId, path))).toEqual(['rename file', 'create other', 'remove other']);
    await client.removeWatcher({ watcherId });
    await expect(client.getWatcherEvents({ watcherId })).rejects.toMatchObject({ rawMessage: /watcher/ });
  });

  test('the removal of the directory is REMOVE of ., then the watcher is not found', async () => {
    const path = newDirectory();
    const { watcherId } = await client.createWatcher({ path });
    rmSync(path, { recursive: true });
    const seen: FilesystemEvent[] = [];
    while (seen.length === 0) seen.push(...(await client.getWatcherEvents({ watcherId })).events);
    expect(brief(seen)).toEqual(['remove .']);
    for (const call of [client.getWatcherEvents, client.removeWatcher])
      await expect(call({ watcherId })).rejects.toMatchObject({
        code: Code.NotFound,
        rawMessage: /watcher not found/,
      });
  });
});

/** Replays the events of a recursive stream during `work` and after it, until the tree equals the real one. */
async function follow(path: string, work: () => Promise<unknown>): Promise<Replay> {
  const gone = new AbortController();
  const stream = connectTo(daemon.url, 'binary').filesystem.watchDir(
    { path, recursive: true, includeEntry: true },
    { signal: gone.signal },
  );
  const live = Promise.withResolvers<void>();
  const replay = new Replay(path);
  const reading = (async () => {
    for await (const { event } of stream) {
      if (event.case === 'start') live.resolve();
      else if (event.case === 'filesystem') replay.apply([toEvent(path, event.value)]);
    }
  })().catch((error: unknown) => {
    if (!gone.signal.aborted) throw error;
  });
  await Promise.race([live.promise, reading]);
  await work();
  const paths = pathsOf(path);
  await expect.poll(() => isDeepStrictEqual(replay.paths(), paths)).toBe(true);
  expect(replay.faults).toEqual([]);
  expect(replay.rescans).toBe(0);
  gone.abort();
  await reading;
  return replay;
}

function toEvent(path: string, { name, type, entry }: FilesystemEvent): WatchEvent {
  if (entry) expect(entry.path).toBe(join(path, name));
  return { type: TYPE[type] ?? 'rescan', name, path: join(path, name), movedFrom: null };
}

function makeTree(root: string, text: string): void {
  for (let directory = 0; directory < 250; directory++) {
    const path = join(root, `package-${directory % 50}`, 'lib', `part-${Math.floor(directory / 50)}`);
    mkdirSync(path, { recursive: true });
    for (let file = 0; file < 20; file++) writeFileSync(join(path, `${file}.js`), `${text} ${file}`);
  }
}

test('5,000 files unpacked and removed, streamed with entries: the replay is right', async () => {
  const source = newDirectory();
  makeTree(source, 'x');
  const archive = `${source}.tar`;
  await run('tar', ['-cf', archive, '-C', source, '.']);
  const path = newDirectory();
  const replay = await follow(path, () => run('tar', ['-xf', archive, '-C', path]));
  expect(replay.paths()).toHaveLength(5000 + 250 + 50 + 50);
  await follow(path, () => run('sh', ['-c', 'rm -rf *'], { cwd: path }));
});

test('a git checkout, streamed with entries: the replay is right', async () => {
  needs('git');
  const path = newDirectory();
  const git = (...args: string[]) =>
    run('git', ['-c', 'user.name=t', '-c', 'user.email=t@t', '-c', 'gc.auto=0', ...args], { cwd: path });
  await git('init', '-b', 'one');
  makeTree(join(path, 'src'), 'one');
  await git('add', '.');
  await git('commit', '-m', 'one');
  await git('checkout', '-b', 'two');
  rmSync(join(path, 'src/package-0'), { recursive: true });
  rmSync(join(path, 'src/package-1/lib'), { recursive: true });
  writeFileSync(join(path, 'src/package-1/lib'), 'now a file');
  makeTree(join(path, 'other'), 'two');
  await git('add', '-A');
  await git('commit', '-m', 'two');
  await follow(path, () => git('checkout', '-q', 'one'));
  await follow(path, () => git('checkout', '-q', 'two'));
});

test('1,000 watches at once, streamed and polled, all report', async () => {
  const client = connectTo(daemon.url).filesystem;
  const path = newDirectory();
  const gone = new AbortController();
  const streams = await Promise.all(
    Array.from({ length: 200 }, async (_, n) => {
      const stream = client.watchDir({ path, recursive: n % 2 === 0 }, { signal: gone.signal });
      const reader = stream[Symbol.asyncIterator]();
      expect((await reader.next()).value?.event.case).toBe('start');
      return reader;
    }),
  );
  const polled: string[] = [];
  for (let n = 0; n < 800; n++) polled.push((await client.createWatcher({ path })).watcherId);
  const held = execFileSync('sh', ['-c', `cat /proc/${daemon.pid}/fdinfo/* 2>/dev/null`], {
    encoding: 'utf8',
  });
  // The directory, the three above it and the root, and one to learn the next watch descriptor.
  expect(held.match(/^inotify wd/gm)?.length).toBeLessThanOrEqual(8);
  mkdirSync(join(path, 'new'));
  for (const reader of streams) {
    const { value } = await reader.next();
    expect(value?.event.case === 'filesystem' && brief([value.event.value])).toEqual(['create new']);
  }
  for (const watcherId of polled) {
    expect(brief((await client.getWatcherEvents({ watcherId })).events)).toEqual(['create new']);
    await client.removeWatcher({ watcherId });
  }
  gone.abort();
});
