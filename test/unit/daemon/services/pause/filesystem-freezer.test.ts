import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { ExclusiveLock, KeyedQueue } from '../../../../../src/base/exclusion.ts';
import { freezeFilesystem } from '../../../../../src/daemon/linux/system/machine.ts';
import {
  FilesystemFreezer,
  type FilesystemFreezerOptions,
} from '../../../../../src/daemon/services/pause/filesystem-freezer.ts';
import { WriteGate } from '../../../../../src/daemon/services/pause/write-gate.ts';
import { loopMount } from '../../../../support/machine/cgroups.ts';
import { isFrozen, isWritable } from '../../../../support/machine/frozen.ts';
import { blockableTmpfs, mountTmpfs } from '../../../../support/machine/mounts.ts';
import { scratch } from '../../../../support/machine/scratch.ts';

/** contract.md, section 7: a freeze that nobody thaws is undone after 10 min. */
const WATCHDOG_MS = 10 * 60 * 1000;

/** A freezer for a file system of its own. */
function setUp(options: Partial<FilesystemFreezerOptions> = {}) {
  const filesystem = loopMount();
  onTestFinished(() => filesystem[Symbol.dispose]());
  const { path } = filesystem;
  const told: string[] = [];
  const complete: FilesystemFreezerOptions = {
    path,
    ownDirectories: [],
    recordFile: join(scratch(), 'run/fsfrozen.json'),
    lock: new ExclusiveLock(),
    queue: new KeyedQueue('freeze or thaw a file system'),
    gate: new WriteGate(),
    onFrozen: (frozen) => void told.push(frozen ? 'frozen' : 'thawed'),
    onWatchdog: (error) => void told.push(`watchdog ${error}`),
    onStaleRecord: () => void told.push('stale record'),
    ...options,
  };
  const create = (more: Partial<FilesystemFreezerOptions> = {}) => {
    const freezer = new FilesystemFreezer({ ...complete, ...more });
    onTestFinished(() => freezer[Symbol.dispose]());
    return freezer;
  };
  return { ...complete, told, create, freezer: create() };
}

test('freezes and thaws, also repeatedly', async () => {
  const { freezer, path, gate, told, recordFile } = setUp();
  await freezer.thaw();
  expect([freezer.active, told]).toEqual([false, []]);
  await freezer.freeze();
  await freezer.freeze();
  expect([freezer.active, gate.isShut, existsSync(recordFile), told]).toEqual([true, true, true, ['frozen']]);
  expect(await isFrozen(path)).toBe(true);
  await freezer.thaw();
  expect(await isWritable(path)).toBe(true);
  expect([freezer.active, gate.isShut, existsSync(recordFile), told]).toEqual([
    false,
    false,
    false,
    ['frozen', 'thawed'],
  ]);
  expect(freezer.durations.count).toBe(2);
});

test('thaw also thaws a file system that others froze, release does not', async () => {
  const { freezer, path } = setUp();
  await freezeFilesystem(path);
  await freezer.release();
  expect(await isFrozen(path)).toBe(true);
  await freezer.thaw();
  expect(await isWritable(path)).toBe(true);
});

describe('one operation at a time', () => {
  test('freeze and thaw are refused while the lock is held, release is not', async () => {
    const { freezer, lock, path } = setUp();
    await freezer.freeze();
    {
      using _ = lock.acquire('collapse');
      await expect(freezer.freeze()).rejects.toMatchObject({
        kind: 'unavailable',
        message: 'cannot fsfreeze now: a collapse is under way',
      });
      await expect(freezer.thaw()).rejects.toMatchObject({ kind: 'unavailable' });
      await freezer.release();
    }
    expect(await isWritable(path)).toBe(true);
    await freezer.freeze();
    await freezer.thaw();
  });

  test('release waits for a freeze in progress', async () => {
    const { freezer, path } = setUp();
    for (let round = 0; round < 20; round++) {
      const frozen = freezer.freeze();
      expect([freezer.active, freezer.mayBeFrozen]).toEqual([false, true]);
      await freezer.release();
      await frozen;
      expect([freezer.active, freezer.mayBeFrozen]).toEqual([false, false]);
      expect(await isWritable(path)).toBe(true);
    }
  });
});

describe('a refused freeze changes nothing', () => {
  test('when the daemon writes to the file system, also to a directory that does not exist yet', async () => {
    for (const below of ['', 'not/there']) {
      const { create, path, told, gate } = setUp();
      const directory = join(path, below);
      const freezer = create({ ownDirectories: ['/proc', directory] });
      await expect(freezer.freeze()).rejects.toMatchObject({
        kind: 'failed_precondition',
        message: `cannot freeze the file system of '${path}': the daemon writes to '${directory}', which must be on another file system`,
      });
      expect([freezer.active, gate.isShut, told]).toEqual([false, false, []]);
      expect(await isWritable(path)).toBe(true);
    }
  });

  test('when the file system cannot be frozen', async () => {
    const { freezer, gate, told, recordFile } = setUp({ path: mountTmpfs('1m') });
    await expect(freezer.freeze()).rejects.toMatchObject({ kind: 'failed_precondition' });
    expect([freezer.active, gate.isShut, existsSync(recordFile)]).toEqual([false, false, false]);
    expect(told).toEqual(['frozen', 'thawed']);
  });

  test('when a change of a file takes too long', async () => {
    const { freezer, gate } = setUp();
    const change = Promise.withResolvers<void>();
    const outcome = gate.run(() => change.promise);
    await expect(freezer.freeze()).rejects.toMatchObject({ kind: 'unavailable' });
    expect([freezer.active, gate.isShut]).toEqual([false, false]);
    change.resolve();
    await outcome;
  });
});

describe('when the record cannot be written', () => {
  test.each([
    ['full', 'no_space', 'ENOSPC'],
    ['read-only', 'failed_precondition', 'EROFS'],
  ] as const)('a freeze changes nothing: %s', async (how, kind, code) => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    const { directory, block, release } = blockableTmpfs(how);
    const file = join(directory, 'fsfrozen.json');
    const { freezer, gate, told, path } = setUp({ recordFile: file });
    block();
    await expect(freezer.freeze()).rejects.toMatchObject({
      kind,
      message: expect.stringMatching(`^cannot record the freeze in '${file}': ${code}: `),
    });
    expect([freezer.active, gate.isShut, told, vi.getTimerCount()]).toEqual([false, false, [], 0]);
    expect(readdirSync(directory).filter((name) => name !== 'filler')).toEqual([]);
    vi.useRealTimers();
    expect(await isWritable(path)).toBe(true);
    release();
    await freezer.freeze();
    await freezer.thaw();
  });

  test('a thaw is done nevertheless', async () => {
    const { directory, block, release } = blockableTmpfs('read-only');
    const file = join(directory, 'fsfrozen.json');
    const { freezer, gate, told, path } = setUp({ recordFile: file });
    await freezer.freeze();
    block();
    await freezer.thaw();
    expect([freezer.active, gate.isShut, told]).toEqual([false, false, ['frozen', 'thawed', 'stale record']]);
    expect(await isWritable(path)).toBe(true);
    release();
    await freezer.thaw();
    expect(existsSync(file)).toBe(false);
  });
});

describe('the file system is thawed', () => {
  test('after ten minutes without a thaw', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    const { freezer, path, told } = setUp();
    await freezer.freeze();
    vi.advanceTimersByTime(WATCHDOG_MS - 1);
    expect(freezer.active).toBe(true);
    vi.advanceTimersByTime(1);
    await expect.poll(() => told).toEqual(['frozen', 'thawed', 'watchdog null']);
    expect(await isWritable(path)).toBe(true);
    await freezer.freeze();
    await freezer.thaw();
    expect(vi.getTimerCount()).toBe(0);
  });

  test('by the next daemon, when one was killed', async () => {
    const { freezer, create, path } = setUp();
    await freezer.freeze();
    const gate = new WriteGate();
    const next = create({ gate });
    expect([next.active, gate.isShut]).toEqual([true, true]);
    expect(await isFrozen(path)).toBe(true);
    await next.release();
    expect(await isWritable(path)).toBe(true);
    expect([create().active, gate.isShut]).toEqual([false, false]);
  });
});
