import { execFileSync } from 'node:child_process';
import { statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connectTo } from '../../support/clients/clients.ts';
import { get, post } from '../../support/clients/files-client.ts';
import { mountTmpfs } from '../../support/machine/mounts.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { until } from '../../support/until.ts';

/* A user of the guest gives one file of a shared directory a time that Timestamp and the dates of HTTP do not have. */

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});

const [FIRST, LAST] = [-62_135_596_800n, 253_402_300_799n];
const TIMES = {
  late: ['@300000000000', LAST, 'Fri, 31 Dec 9999 23:59:59 GMT'],
  last: ['@1000000000000000000', LAST, 'Fri, 31 Dec 9999 23:59:59 GMT'],
  first: ['@-1000000000000000000.5', FIRST, 'Mon, 01 Jan 0001 00:00:00 GMT'],
  early: ['@-1.25', -2n, 'Wed, 31 Dec 1969 23:59:58 GMT'],
} as const;
const names = Object.keys(TIMES) as (keyof typeof TIMES)[];
const touch = (path: string, time: string) => execFileSync('touch', ['-m', '-d', time, path]);
const mtime = (path: string) => statSync(path, { bigint: true }).mtimeNs;

/** A directory whose files have these times. */
function directory(): string {
  const made = mountTmpfs('4m');
  for (const name of names) {
    writeFileSync(join(made, name), name);
    touch(join(made, name), TIMES[name][0]);
  }
  return made;
}

test.each(['json', 'binary'] as const)('Stat, ListDir and events, %s', async (codec) => {
  const { filesystem } = connectTo(daemon.url, codec);
  const path = directory();
  const wanted = names.map((name) => [name, TIMES[name][1]]);
  const { entries } = await filesystem.listDir({ path });
  const byName = new Map(entries.map(({ name, modifiedTime }) => [name, modifiedTime?.seconds]));
  expect(byName).toEqual(new Map(wanted as [string, bigint][]));
  for (const name of names)
    expect((await filesystem.stat({ path: join(path, name) })).entry?.modifiedTime?.seconds).toBe(
      TIMES[name][1],
    );

  const { watcherId } = await filesystem.createWatcher({ path, includeEntry: true });
  touch(join(path, 'early'), '@400000000000');
  const { events } = await until(
    'the change is told',
    () => filesystem.getWatcherEvents({ watcherId }),
    (answer) => answer.events.length > 0,
  );
  expect(events[0]?.entry?.modifiedTime?.seconds).toBe(LAST);
});

test.each(names)('a download of the file "%s"', async (name) => {
  const path = join(directory(), name);
  const response = await get(daemon, path);
  expect([response.status, await response.text()]).toEqual([200, name]);
  expect(response.headers.get('last-modified')).toBe(TIMES[name][2]);
  const etag = String(response.headers.get('etag'));
  expect((await get(daemon, path, { 'if-none-match': etag })).status).toBe(304);
  // The tag is that of the real time.
  touch(path, '@301000000000');
  expect((await get(daemon, path, { 'if-none-match': etag })).status).toBe(200);
});

test('archives', async () => {
  const path = directory();
  const tar = Buffer.from(await (await fetch(`${daemon.url}/files?path=${path}&format=tar`)).arrayBuffer());
  // GNU tar reads it, and so does the daemon.
  expect(execFileSync('tar', ['-tf', '-'], { input: tar, encoding: 'utf8' })).toContain('./late');
  const to = mountTmpfs('4m');
  expect((await post(daemon, { path: to }, { 'content-type': 'application/x-tar' }, tar)).status).toBe(200);
  expect(mtime(join(to, 'late'))).toBe(mtime(join(path, 'late')));
  expect(mtime(join(to, 'early'))).toBe(mtime(join(path, 'early')));
  expect((await fetch(`${daemon.url}/files?path=${path}&format=zip`)).status).toBe(200);
});

test('copies and moves keep such a time', async () => {
  const { filesystem } = connectTo(daemon.url);
  const [from, to] = [directory(), mountTmpfs('4m')];
  const before = names.map((name) => mtime(join(from, name)));
  await filesystem.copy({ source: from, destination: join(to, 'copied') });
  expect(names.map((name) => mtime(join(to, 'copied', name)))).toEqual(before);
  await filesystem.move({ source: join(from, 'late'), destination: join(to, 'moved') });
  expect(mtime(join(to, 'moved'))).toBe(before[0]);
});
