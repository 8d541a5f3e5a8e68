import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import { ExclusiveLock } from '../../../../../src/base/exclusion.ts';
import { Cgroup } from '../../../../../src/daemon/linux/cgroups/cgroup2.ts';
import {
  Freezer,
  type FreezerOptions,
  type FreezeStatistics,
} from '../../../../../src/daemon/services/pause/freezer.ts';
import { blockedWriter, countIn, testCgroup } from '../../../../support/machine/cgroups.ts';
import { blockableTmpfs } from '../../../../support/machine/mounts.ts';

/** contract.md, section 7: a freeze that nobody thaws is undone after 10 min. */
const WATCHDOG_MS = 10 * 60 * 1000;

const scratch = mkdtempSync(join(tmpdir(), 'envd-freezer-'));
const recordFile = join(scratch, 'run/envd/frozen.json');
const never = new AbortController().signal;

afterAll(() => rmSync(scratch, { recursive: true }));
beforeEach(() => rmSync(recordFile, { force: true }));

function make(top: Cgroup, path: string): Cgroup {
  return Cgroup.create(join(top.path, path));
}

function freezerFor(top: Cgroup, options: Partial<FreezerOptions> = {}): Freezer {
  return new Freezer({
    workload: [make(top, 'user'), make(top, 'ptys')],
    obstacle: null,
    hierarchy: { top, own: make(top, 'system.slice/envd.service') },
    recordFile,
    lock: new ExclusiveLock(),
    onWatchdog: () => {},
    onStaleRecord: () => {},
    ...options,
  });
}

const legacy = { mode: 'legacy', maxCgroups: 100, maxWaitMs: 5000 } as const;
const hierarchy = { mode: 'hierarchy', maxCgroups: 100, maxWaitMs: 5000 } as const;

const nothing = { allowlisted: 0, truncated: false, preFrozen: 0, notFrozen: 0, failed: 0, unobservable: 0 };

function withoutTimes({
  sweepMs,
  waitMs,
  ...counts
}: FreezeStatistics): Omit<FreezeStatistics, 'sweepMs' | 'waitMs'> {
  expect(Number.isInteger(sweepMs) && Number.isInteger(waitMs)).toBe(true);
  return counts;
}

describe('legacy mode', () => {
  test('stops a counting process, which continues after the thaw', async () => {
    using top = testCgroup();
    using freezer = freezerFor(top);
    const counter = await countIn(top.child('user'));
    const outside = await countIn(top.child('system.slice'));
    const statistics = await freezer.freeze(legacy, never);
    expect(await counter.stands()).toBe(true);
    expect(withoutTimes(statistics)).toEqual({
      mode: 'legacy',
      ...nothing,
      visited: 2,
      requested: 2,
      frozen: 2,
    });
    expect(freezer.active).toBe(true);
    // Legacy mode needs no record: the next daemon knows these cgroups.
    expect(existsSync(recordFile)).toBe(false);
    await outside.advances();
    freezer.thaw();
    await counter.advances();
    expect(freezer.active).toBe(false);
  });

  test('returns the statistics in the documented order', async () => {
    using top = testCgroup();
    using freezer = freezerFor(top);
    const keys =
      'mode visited allowlisted truncated preFrozen requested frozen notFrozen failed unobservable';
    expect(Object.keys(await freezer.freeze(legacy, never)).join(' ')).toBe(`${keys} sweepMs waitMs`);
  });

  test('can be repeated', async () => {
    using top = testCgroup();
    using freezer = freezerFor(top);
    await freezer.freeze(legacy, never);
    expect(await freezer.freeze(legacy, never)).toMatchObject({ preFrozen: 0, requested: 2, frozen: 2 });
  });

  test('does not thaw cgroups that the guest froze, above, below or among its own', async () => {
    using top = testCgroup();
    using freezer = freezerFor(top);
    const [user, inner, ptys] = [top.child('user'), make(top, 'user/inner'), top.child('ptys')];
    inner.freeze();
    ptys.freeze();
    expect(await freezer.freeze(legacy, never)).toMatchObject({ visited: 2, preFrozen: 1, requested: 1 });
    freezer.thaw();
    expect(user.freezeRequested()).toBe(false);
    expect(inner.freezeRequested()).toBe(true);
    expect(ptys.freezeRequested()).toBe(true);
  });

  test('counts a cgroup below a frozen parent as frozen, and does not thaw the parent', async () => {
    using top = testCgroup();
    const parent = make(top, 'parent');
    using freezer = freezerFor(parent);
    parent.freeze();
    expect(await freezer.freeze(legacy, never)).toMatchObject({ preFrozen: 0, requested: 2, frozen: 2 });
    freezer.thaw();
    expect(parent.freezeRequested()).toBe(true);
    expect(parent.child('user').freezeRequested()).toBe(false);
    expect(parent.child('user').isFrozen()).toBe(true);
  });

  test('gives up at the deadline when a process cannot be frozen', async () => {
    using top = testCgroup();
    using freezer = freezerFor(top);
    using writer = await blockedWriter(top.child('user'));
    const statistics = await freezer.freeze({ ...legacy, maxWaitMs: 20 }, never);
    expect(statistics).toMatchObject({ requested: 2, frozen: 1, notFrozen: 1, unobservable: 0 });
    expect(statistics.waitMs).toBeGreaterThanOrEqual(20);
    expect(top.child('user').freezeRequested()).toBe(true);
    writer.unblock();
    expect(await freezer.freeze(legacy, never)).toMatchObject({ frozen: 2, notFrozen: 0 });
  });

  test('ignores cgroups that vanish', async () => {
    using top = testCgroup();
    using freezer = freezerFor(top);
    top.child('ptys').remove();
    expect(await freezer.freeze(legacy, never)).toMatchObject({
      visited: 1,
      requested: 1,
      frozen: 1,
      failed: 0,
    });
    top.child('user').remove();
    freezer.thaw();
    expect(freezer.active).toBe(false);
  });

  test('is refused when nothing can be frozen', async () => {
    using top = testCgroup();
    using freezer = freezerFor(top, { obstacle: 'no cgroups here' });
    for (const request of [legacy, hierarchy]) {
      await expect(freezer.freeze(request, never)).rejects.toMatchObject({
        kind: 'failed_precondition',
        message: 'cannot freeze the workload: no cgroups here',
      });
    }
    expect(freezer.active).toBe(false);
    freezer.thaw();
  });
});

describe('hierarchy mode', () => {
  test("freezes all but the daemon's ancestors and the units that a resume needs", async () => {
    using top = testCgroup();
    using freezer = freezerFor(top);
    const units = ['systemd-journald.service', 'rpcbind.service', 'rpcbind.socket', 'rpc-statd.service'];
    const kept = ['init.scope', ...units.map((name) => `system.slice/${name}`)];
    const chain = ['system.slice', 'system.slice/envd.service'];
    const stopped = [
      'user',
      'ptys',
      'user.slice',
      'system.slice/cron.service',
      'system.slice/envd.service/child',
    ];
    for (const path of [...kept, ...stopped, 'user.slice/user-0.slice/init.scope']) make(top, path);
    expect(withoutTimes(await freezer.freeze(hierarchy, never))).toEqual({
      mode: 'hierarchy',
      ...nothing,
      visited: kept.length + chain.length + stopped.length,
      allowlisted: kept.length + chain.length,
      requested: stopped.length,
      frozen: stopped.length,
    });
    expect([...kept, ...chain].filter((path) => top.child(path).isFrozen())).toEqual([]);
    expect(stopped.filter((path) => !top.child(path).isFrozen())).toEqual([]);
    expect(make(top, 'user.slice/later').isFrozen()).toBe(true);
    freezer.thaw();
    expect(stopped.filter((path) => top.child(path).freezeRequested())).toEqual([]);
  });

  test('keeps cgroups that the guest froze, and skips what is below them', async () => {
    using top = testCgroup();
    using freezer = freezerFor(top);
    const paused = make(top, 'docker/paused');
    const parent = make(top, 'parent');
    make(top, 'parent/child');
    paused.freeze();
    parent.freeze();
    expect(await freezer.freeze(hierarchy, never)).toMatchObject({ visited: 6, preFrozen: 1, requested: 3 });
    freezer.thaw();
    expect(top.child('docker').freezeRequested()).toBe(false);
    expect(paused.isFrozen() && parent.isFrozen() && parent.child('child').isFrozen()).toBe(true);
  });

  test('also freezes new cgroups when it is repeated', async () => {
    using top = testCgroup();
    using freezer = freezerFor(top);
    make(top, 'system.slice/cron.service');
    expect(await freezer.freeze(hierarchy, never)).toMatchObject({ requested: 3 });
    const late = make(top, 'system.slice/late.service');
    expect(late.isFrozen()).toBe(false);
    expect(await freezer.freeze(hierarchy, never)).toMatchObject({ preFrozen: 0, requested: 4, frozen: 4 });
    expect(late.freezeRequested()).toBe(true);
    await expect.poll(() => freezer.audit()).toMatchObject({ frozen: 4, escaped: 0 });
    freezer.thaw();
    expect(late.freezeRequested()).toBe(false);
  });

  test('visits no more than the maximum, and the workload besides', async () => {
    using top = testCgroup();
    using freezer = freezerFor(top);
    for (const name of ['a', 'b', 'c']) make(top, name);
    const bounded = await freezer.freeze({ ...hierarchy, maxCgroups: 1 }, never);
    expect(bounded).toMatchObject({ visited: 3, truncated: true });
    expect(top.child('user').isFrozen() && top.child('ptys').isFrozen()).toBe(true);
    await expect.poll(() => freezer.audit()).toMatchObject({ visited: 3, truncated: true });
    expect(await freezer.freeze({ ...legacy, maxCgroups: 1 }, never)).toMatchObject({
      ...{ visited: 2, frozen: 2, truncated: false },
    });
    expect(await freezer.freeze({ ...hierarchy, maxCgroups: 5 }, never)).toMatchObject({
      ...{ visited: 7, truncated: false },
    });
    expect(await freezer.freeze({ ...hierarchy, maxCgroups: 4 }, never)).toMatchObject({ truncated: true });
  });
});

describe('a freeze in progress', () => {
  test('refuses a second one, and is ended by a thaw', async () => {
    using top = testCgroup();
    using freezer = freezerFor(top);
    using writer = await blockedWriter(top.child('user'));
    const first = freezer.freeze({ ...legacy, maxWaitMs: 60_000 }, never);
    const ended = expect(first).rejects.toMatchObject({ kind: 'aborted' });
    await expect(freezer.freeze(legacy, never)).rejects.toMatchObject({ kind: 'unavailable' });
    freezer.thaw();
    await ended;
    expect(top.child('user').freezeRequested()).toBe(false);
    writer.unblock();
    expect(await freezer.freeze(legacy, never)).toMatchObject({ frozen: 2 });
  });

  test('ends when its caller disconnects', async () => {
    using top = testCgroup();
    using freezer = freezerFor(top);
    using _writer = await blockedWriter(top.child('user'));
    const caller = new AbortController();
    const frozen = freezer.freeze({ ...legacy, maxWaitMs: 60_000 }, caller.signal);
    const gone = new Error('client disconnected');
    caller.abort(gone);
    await expect(frozen).rejects.toBe(gone);
    expect(top.child('user').freezeRequested()).toBe(true);
  });
});

describe('when the record cannot be written', () => {
  test.each([
    ['full', 'no_space', 'ENOSPC'],
    ['read-only', 'failed_precondition', 'EROFS'],
  ] as const)('a freeze changes nothing: %s', async (how, kind, code) => {
    using top = testCgroup();
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    const { directory, block, release } = blockableTmpfs(how);
    const file = join(directory, 'frozen.json');
    using freezer = freezerFor(top, { recordFile: file });
    const other = make(top, 'other');
    block();
    await expect(freezer.freeze(hierarchy, never)).rejects.toMatchObject({
      kind,
      message: expect.stringMatching(`^cannot record the freeze in '${file}': ${code}: `),
    });
    const all = [other, top.child('user'), top.child('ptys')];
    expect([freezer.active, freezer.audit(), vi.getTimerCount()]).toEqual([false, null, 0]);
    expect(all.filter((cgroup) => cgroup.freezeRequested())).toEqual([]);
    expect(readdirSync(directory).filter((name) => name !== 'filler')).toEqual([]);
    // It needs no record.
    expect(await freezer.freeze(legacy, never)).toMatchObject({ frozen: 2 });
    release();
    expect(await freezer.freeze(hierarchy, never)).toMatchObject({ frozen: 3 });
  });

  test('a thaw is done nevertheless, and tells once that the record is stale', async () => {
    using top = testCgroup();
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    const { directory, block, release } = blockableTmpfs('read-only');
    const file = join(directory, 'frozen.json');
    const onStaleRecord = vi.fn();
    using freezer = freezerFor(top, { recordFile: file, onStaleRecord });
    make(top, 'other');
    await freezer.freeze({ ...hierarchy, maxWaitMs: 0 }, never);
    block();
    freezer.thaw();
    freezer.thaw();
    expect([freezer.active, vi.getTimerCount(), existsSync(file)]).toEqual([false, 0, true]);
    expect(onStaleRecord).toHaveBeenCalledOnce();
    release();
    freezer.thaw();
    expect(existsSync(file)).toBe(false);
  });
});

describe('the workload is thawed', () => {
  test('after ten minutes without a thaw', async () => {
    using top = testCgroup();
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    const onWatchdog = vi.fn();
    try {
      using freezer = freezerFor(top, { onWatchdog });
      await freezer.freeze(legacy, never);
      vi.advanceTimersByTime(WATCHDOG_MS - 1);
      expect(top.child('user').freezeRequested()).toBe(true);
      expect(onWatchdog).not.toHaveBeenCalled();
      await vi.advanceTimersByTimeAsync(1);
      expect(top.child('user').freezeRequested()).toBe(false);
      expect(onWatchdog).toHaveBeenCalledExactlyOnceWith(null);
      await freezer.freeze(legacy, never);
      freezer.thaw();
      expect(vi.getTimerCount()).toBe(0);
    } finally {
      vi.useRealTimers();
    }
  });

  test('when the daemon stops', async () => {
    using top = testCgroup();
    const freezer = freezerFor(top);
    await freezer.freeze(hierarchy, never);
    freezer[Symbol.dispose]();
    expect(top.child('user').freezeRequested()).toBe(false);
    expect(existsSync(recordFile)).toBe(false);
  });

  test('by the next daemon, when one was killed', async () => {
    using top = testCgroup();
    const other = make(top, 'other');
    const paused = make(top, 'paused');
    paused.freeze();
    await freezerFor(top).freeze(hierarchy, never);
    expect(existsSync(recordFile)).toBe(true);
    using next = freezerFor(top);
    expect(next.active).toBe(true);
    next.thaw();
    expect(
      [top.child('user'), top.child('ptys'), other].filter((cgroup) => cgroup.freezeRequested()),
    ).toEqual([]);
    expect(paused.freezeRequested()).toBe(true);
    expect(existsSync(recordFile)).toBe(false);
  });

  test('when the record names a vanished cgroup or is invalid', async () => {
    using top = testCgroup();
    using first = freezerFor(top);
    await first.freeze(hierarchy, never);
    writeFileSync(recordFile, JSON.stringify([top.child('gone').path, 7]));
    using second = freezerFor(top);
    second.thaw();
    writeFileSync(recordFile, '{');
    using third = freezerFor(top);
    expect(third.active).toBe(false);
  });

  test('as far as possible; the rest is reported and stays recorded', async () => {
    using top = testCgroup();
    writeFileSync(`${scratch}/file`, '');
    writeFileSync(
      join(scratch, 'run/envd/frozen.json'),
      JSON.stringify([`${scratch}/file`, top.child('a').path]),
    );
    make(top, 'a').freeze();
    const freezer = freezerFor(top);
    expect(() => freezer.thaw()).toThrow(`cannot thaw cgroup '${scratch}/file': ENOTDIR`);
    expect(top.child('a').freezeRequested()).toBe(false);
    expect(freezer.active).toBe(true);
    expect(readFileSync(recordFile, 'utf8')).toBe(JSON.stringify([`${scratch}/file`]));
  });
});
