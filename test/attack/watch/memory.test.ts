import {
  closeSync,
  linkSync,
  mkdirSync,
  openSync,
  renameSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { EventType } from '../../../src/gen/filesystem/filesystem_pb.js';
import { connectTo } from '../../support/clients/clients.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { DAEMON_PROGRAM } from '../../support/programs/programs.ts';
import { until } from '../../support/until.ts';

/* A guest process fills the queues of watches that nobody polls, with names and paths as long as they can be. */

const LONGEST_NAME = 255;
/** The heap of the daemon, in MiB. */
const HEAP = 128;
const EVENTS = 40_000;
const BURST = 4000;
/** On a busy machine the daemon may get little of a processor, and these limits are only for what hangs. */
const READ_LIMIT_MS = 120_000;
const TEST_LIMIT_MS = 600_000;

function small(heap = HEAP): Promise<TestDaemon> {
  return startDaemon({ command: [process.execPath, `--max-old-space-size=${heap}`, DAEMON_PROGRAM] });
}

/** A directory whose path is almost as long as a path can be. */
function deepBelow(top: string): string {
  let path = top;
  while (path.length < 4095 - 2 * (LONGEST_NAME + 1)) path = join(path, 'd'.repeat(LONGEST_NAME));
  mkdirSync(path, { recursive: true });
  return path;
}

test.each([
  { name: 'in one directory', directories: 1 },
  { name: 'in many directories', directories: 500 },
])('watches that nobody polls, events $name', { timeout: TEST_LIMIT_MS }, async ({ directories }) => {
  await using daemon = await small();
  const { filesystem } = connectTo(daemon.url, 'binary');
  // A file system in memory, as many events are needed.
  const top = scratch('/dev/shm');
  const deep = deepBelow(top);
  const inside = Array.from({ length: directories }, (_, n) => join(deep, `${n}`.padEnd(120, 'x')));
  for (const directory of inside) mkdirSync(directory);
  const watcherIds: string[] = [];
  for (let n = 0; n < 8; n += 1)
    watcherIds.push((await filesystem.createWatcher({ path: top, recursive: true })).watcherId);
  const { watcherId: marks } = await filesystem.createWatcher({ path: daemon.scratch });
  for (let event = 0; event < EVENTS; event += 2) {
    const path = join(inside[event % directories] ?? '', `${event}`.padEnd(120, 'y'));
    closeSync(openSync(path, 'w'));
    unlinkSync(path);
    if (event % BURST > 0) continue;
    // The queue of the kernel does not overflow: the daemon has read up to here.
    const mark = `mark-${event}`;
    writeFileSync(join(daemon.scratch, mark), '');
    await until(
      'the events are read',
      async () => (await filesystem.getWatcherEvents({ watcherId: marks })).events,
      (events) => events.some(({ name }) => name === mark),
      READ_LIMIT_MS,
    );
  }
  // Some were too large, and their clients are told.
  const told = new Set<EventType>();
  for (const watcherId of watcherIds)
    for (const { type } of (await filesystem.getWatcherEvents({ watcherId })).events) told.add(type);
  expect(told).toContain(EventType.UNSPECIFIED);
  expect((await fetch(`${daemon.url}/health`)).status).toBe(204);
});

test('entries with long names, paths and targets', async () => {
  await using daemon = await small();
  const { filesystem } = connectTo(daemon.url, 'binary');
  const top = scratch('/dev/shm');
  const deep = deepBelow(top);
  const target = deepBelow(scratch('/dev/shm'));
  const path = top;
  const { watcherId } = await filesystem.createWatcher({ path, recursive: true, includeEntry: true });
  const COUNT = 1200;
  for (let n = 0; n < COUNT; n += 1) symlinkSync(target, join(deep, `${n}`.padEnd(LONGEST_NAME, 'y')));
  let count = 0;
  let answers = 0;
  await until('all are told', async () => {
    const { events } = await filesystem.getWatcherEvents({ watcherId });
    count += events.length;
    const sizes = events.map(
      ({ name, entry }) => name.length + (entry?.path.length ?? 0) + (entry?.symlinkTarget?.length ?? 0),
    );
    if (sizes.length > 0) expect(Math.min(...sizes)).toBeGreaterThan(10_000);
    if (events.length > 0) answers += 1;
    return count === COUNT;
  });
  expect(answers).toBeGreaterThan(2);
});

test('a directory with many long names is moved into a watched one', async () => {
  await using daemon = await small(96);
  const { filesystem } = connectTo(daemon.url, 'binary');
  const top = scratch('/dev/shm');
  const [watched, outside] = [join(top, 'watched'), join(top, 'outside')];
  for (const directory of [watched, outside]) mkdirSync(directory);
  const first = join(outside, 'first');
  writeFileSync(first, '');
  for (let n = 0; n < 250_000; n += 1) linkSync(first, join(outside, `${n}`.padEnd(LONGEST_NAME, 'y')));
  const { watcherId } = await filesystem.createWatcher({ path: watched, recursive: true });
  renameSync(outside, join(watched, 'inside'));
  await until(
    'the client is told that it must look itself',
    async () => (await filesystem.getWatcherEvents({ watcherId })).events,
    (events) => events.some(({ type }) => type === EventType.UNSPECIFIED),
    READ_LIMIT_MS,
  );
  // It goes on with what happens afterwards.
  writeFileSync(join(watched, 'inside', 'later'), '');
  await until(
    'a change is told',
    async () => (await filesystem.getWatcherEvents({ watcherId })).events,
    (events) => events.some(({ name }) => name === 'inside/later'),
    READ_LIMIT_MS,
  );
  expect((await fetch(`${daemon.url}/health`)).status).toBe(204);
});
