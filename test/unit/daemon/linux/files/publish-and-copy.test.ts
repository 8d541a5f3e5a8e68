import {
  closeSync,
  existsSync,
  fstatSync,
  ftruncateSync,
  openSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { copyContent } from '../../../../../src/daemon/linux/files/copy-content.ts';
import { PathHandle } from '../../../../../src/daemon/linux/files/place.ts';
import { native } from '../../../../../src/daemon/linux/system/native.ts';
import { mountTmpfs } from '../../../../support/machine/mounts.ts';
import { scratch } from '../../../../support/machine/scratch.ts';
import { ADA } from '../../../../support/machine/users.ts';
import { quickFile, testLanes } from '../../../../support/services/lanes.ts';

function openFile(path: string, flags = 'r+'): number {
  const descriptor = openSync(path, flags);
  onTestFinished(() => closeSync(descriptor));
  return descriptor;
}

describe('an unnamed file', () => {
  test('is published under a name, with owner and content', async () => {
    const path = join(scratch(), 'named');
    using place = await PathHandle.open(path, false, testLanes);
    await using file = await place.openUnnamed();
    if (!file) throw new Error('no O_TMPFILE here');
    await file.writev([Buffer.from('content')], null);
    expect(existsSync(path)).toBe(false);
    await place.publish(file, ADA);
    expect(readFileSync(path, 'utf8')).toBe('content');
    expect(statSync(path)).toMatchObject({ uid: 2001, gid: 2002, nlink: 1 });
    expect(statSync(path).mode & 0o7777).toBe(0o644);
  });

  test('is not published under an existing name', async () => {
    const directory = scratch();
    using place = await PathHandle.open(join(directory, 'x'), false, testLanes);
    await using file = await place.openUnnamed();
    const publish = async (name: string) =>
      native.publishFile(file?.fd ?? -1, place.directory, Buffer.from(name), 0, 0);
    writeFileSync(join(directory, 'file'), 'old');
    symlinkSync('nowhere', join(directory, 'dangling'));
    await expect(publish('file')).rejects.toMatchObject({ code: 'EEXIST', syscall: 'linkat' });
    await expect(publish('dangling')).rejects.toMatchObject({ code: 'EEXIST' });
    await expect(publish('missing/file')).rejects.toMatchObject({ code: 'ENOENT' });
    expect(readFileSync(join(directory, 'file'), 'utf8')).toBe('old');
  });

  test('cannot be created on /proc and /sys', async () => {
    for (const directory of ['/proc', '/sys']) {
      using place = await PathHandle.open(`${directory}/x`, false, testLanes);
      expect(await place.openUnnamed()).toBeNull();
    }
  });
});

describe('copying', () => {
  test.each([
    ['in one file system', () => scratch()],
    ['across two', () => mountTmpfs('1m')],
  ])('%s appends a range', async (_name, elsewhere) => {
    const source = join(scratch(), 'source');
    const target = join(elsewhere(), 'target');
    const content = Buffer.alloc(700_001, 'abc');
    writeFileSync(source, content);
    writeFileSync(target, 'start|');
    const from = quickFile(openFile(source));
    const to = quickFile(openFile(target));
    expect(await copyContent(from, to, 6)).toBe(content.length);
    expect(readFileSync(target).equals(Buffer.concat([Buffer.from('start|'), content]))).toBe(true);
    expect(await copyContent(from, to, 0, 3)).toBe(3);
    expect(readFileSync(target, 'latin1').slice(0, 6)).toBe('abcrt|');
    expect(await copyContent(from, to, 0, 0)).toBe(0);
  });

  test('copies a file of /proc, whose size is 0', async () => {
    const target = join(scratch(), 'target');
    const to = quickFile(openFile(target, 'w+'));
    await copyContent(quickFile(openFile('/proc/version', 'r')), to);
    expect(readFileSync(target, 'utf8')).toBe(readFileSync('/proc/version', 'utf8'));
  });

  test('throws the error of the system call', async () => {
    await expect(copyContent(quickFile(99_999), quickFile(99_999), 0, 1)).rejects.toMatchObject({
      code: 'EBADF',
    });
    const full = join(mountTmpfs('64k'), 'target');
    const source = join(scratch(), 'source');
    writeFileSync(source, Buffer.alloc(100_000));
    const copy = copyContent(quickFile(openFile(source)), quickFile(openFile(full, 'w+')));
    await expect(copy).rejects.toMatchObject({ code: 'ENOSPC' });
  });
});

describe('reserveSpace', () => {
  test('allocates blocks without changing size or content', async () => {
    const path = join(scratch(), 'file');
    writeFileSync(path, 'content');
    const descriptor = openFile(path);
    await native.reserveSpace(descriptor, 0, 1_000_000);
    expect(fstatSync(descriptor).blocks * 512).toBeGreaterThanOrEqual(1_000_000);
    expect(readFileSync(path, 'utf8')).toBe('content');
  });

  test('fills holes', async () => {
    const descriptor = openFile(join(scratch(), 'sparse'), 'w+');
    ftruncateSync(descriptor, 1_000_000);
    expect(fstatSync(descriptor).blocks).toBe(0);
    await native.reserveSpace(descriptor, 0, 500_000);
    expect(fstatSync(descriptor).blocks * 512).toBeGreaterThanOrEqual(500_000);
    expect(fstatSync(descriptor).size).toBe(1_000_000);
  });

  test('does not touch a file that has the blocks', async () => {
    const descriptor = openFile(join(scratch(), 'full'), 'w+');
    writeSync(descriptor, Buffer.alloc(100_000));
    const { ctimeNs } = fstatSync(descriptor, { bigint: true });
    await native.reserveSpace(descriptor, 0, 100_000);
    expect(fstatSync(descriptor, { bigint: true }).ctimeNs).toBe(ctimeNs);
  });

  test('frees what it allocated when there is no space', async () => {
    const descriptor = openFile(join(mountTmpfs('1m'), 'file'), 'w+');
    writeSync(descriptor, 'content');
    await expect(native.reserveSpace(descriptor, 0, 2_000_000)).rejects.toMatchObject({
      code: 'ENOSPC',
      syscall: 'fallocate',
    });
    expect(fstatSync(descriptor)).toMatchObject({ size: 7, blocks: 8 });
  });
});
