import { afterEach, expect, test, vi } from 'vitest';
import { Unread } from '../../../../../src/base/unread.ts';
import { UserDatabase } from '../../../../../src/daemon/os/users.ts';
import { Guest } from '../../../../../src/daemon/services/guest/guest.ts';
import { WorkloadCgroups } from '../../../../../src/daemon/services/process/cgroups.ts';
import { ProcessTable } from '../../../../../src/daemon/services/process/table.ts';
import { testLanes } from '../../../../support/lanes.ts';

afterEach(() => {
  vi.useRealTimers();
});

test('an ended process can be connected to for 30 s', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const users = new UserDatabase();
  const options = {
    path: '/usr/bin:/bin',
    historyBytes: 0,
    startTimeout: 10,
    maxProcesses: 1024,
    unread: new Unread(64 * 1024 * 1024),
    lanes: testLanes,
  };
  const table = new ProcessTable(new Guest(users), WorkloadCgroups.create(null), options);
  const config = { command: 'true', args: [], environment: {}, cwd: '/' };
  const user = users.lookup('root');
  const request = { config, user, tag: 'short', terminal: null, stdin: false, startId: null };
  using feed = await table.start(request, null);
  const process = table.find({ tag: 'short' });
  await process.ended;
  expect(table.list()).toEqual([]);
  for (const selector of [{ pid: process.pid }, { tag: 'short' }]) {
    expect(table.findRetained(selector)).toBe(process);
    expect(() => table.find(selector)).toThrow('not found');
  }
  vi.advanceTimersByTime(29_999);
  using late = table.findRetained({ tag: 'short' }).read(null);
  expect((await late.next())?.map(({ type }) => type)).toEqual(['start']);
  expect((await late.next())?.map(({ type }) => type)).toEqual(['end']);
  vi.advanceTimersByTime(1);
  expect(() => table.findRetained({ pid: process.pid })).toThrow(`process with pid ${process.pid} not found`);
  expect((await feed.next())?.[0]?.type).toBe('start');
});
