import { closeSync, mkdirSync, openSync, unlinkSync, writeFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { bytePath } from '../../../../../src/daemon/linux/paths/byte-path.ts';
import type { TreeChange } from '../../../../../src/daemon/services/watch/local/event.ts';
import { Backlog, Outbox } from '../../../../../src/daemon/services/watch/outbox.ts';
import { WatchFixture } from '../../../../support/services/watch.ts';

const created = (name: string): TreeChange => ({
  type: 'create',
  directory: '',
  name: bytePath(name),
  movedFrom: null,
});

const LONG = 'n'.repeat(255);

test("after an overflow of the kernel's queue a rescan is reported, and new directories are watched", async () => {
  await using f = new WatchFixture();
  mkdirSync(f.at('old'), { recursive: true });
  const watch = await f.watch();
  // More than the reader's backlog and the kernel's queue hold together.
  for (let n = 0; n < 25_000; n++) {
    closeSync(openSync(f.at(LONG), 'w'));
    unlinkSync(f.at(LONG));
  }
  mkdirSync(f.at('old/lost/below'), { recursive: true });
  const types = new Set<string>();
  while (!types.has('rescan')) for (const { type } of (await watch.next()) ?? []) types.add(type);
  expect([...types]).toEqual(['create', 'remove', 'rescan']);
  writeFileSync(f.at('old/lost/below/file'), '');
  expect(await f.told(watch)).toEqual(['create old/lost/below/file']);
});

test("a burst larger than the kernel's queue is reported completely", async () => {
  await using f = new WatchFixture();
  mkdirSync(f.dir);
  const watch = await f.watch();
  const expected: string[] = [];
  for (let n = 0; n < 12_000; n++) {
    closeSync(openSync(f.at(`${n}`), 'w'));
    unlinkSync(f.at(`${n}`));
    expected.push(`create ${n}`, `remove ${n}`);
  }
  expect(await f.told(watch)).toEqual(expected);
});

test('a slow reader gets one rescan, then the later events', async () => {
  await using f = new WatchFixture();
  mkdirSync(f.dir);
  const watch = await f.watch();
  const other = await f.watch();
  for (let round = 0; round < 8; round++) {
    for (let n = 0; n < 5000; n++) {
      closeSync(openSync(f.at('file'), 'w'));
      unlinkSync(f.at('file'));
    }
    // The other reader keeps up.
    expect(await f.told(other)).toHaveLength(10_000);
  }
  const events = (await watch.next()) ?? [];
  expect(events[0]).toMatchObject({ type: 'rescan', name: '.', path: f.dir });
  expect(events.slice(1).filter((event) => event.type === 'rescan')).toEqual([]);
  expect(events).toHaveLength(1024);
});

test('an outbox beyond its limit is replaced by a rescan', async () => {
  using outbox = new Outbox('/root', new Backlog(), 499);
  for (const name of ['a', 'b', 'c', 'd']) outbox.push(created(name));
  expect(outbox.take()?.map(({ type, path }) => `${type} ${path}`)).toEqual([
    'rescan /root',
    'create /root/d',
  ]);
  expect(outbox.take()).toEqual([]);
});

test('beyond the limit of all outboxes the fullest is replaced by a rescan', async () => {
  const backlog = new Backlog(2000);
  using full = new Outbox('/full', backlog);
  using other = new Outbox('/other', backlog);
  for (let n = 0; n < 12; n++) full.push(created(`${n}`));
  for (let n = 0; n < 5; n++) other.push(created(`${n}`));
  expect(full.take()?.map((event) => event.type)).toEqual(['rescan']);
  expect(other.take()).toHaveLength(5);
  expect(backlog.bytes).toBe(0);
});

test('the backlog is reduced when a watch ends', () => {
  const backlog = new Backlog();
  const outbox = new Outbox('/', backlog);
  outbox.push(created('a'));
  outbox.push(created('b'));
  expect(outbox.take()?.[1]?.path).toBe('/b');
  outbox.push(created('c'));
  outbox[Symbol.dispose]();
  expect(backlog.bytes).toBe(0);
});
