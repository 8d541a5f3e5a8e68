import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import {
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { Lanes } from '../../../../../src/daemon/linux/lanes/lanes.ts';
import { native } from '../../../../../src/daemon/linux/system/native.ts';
import { openDownload } from '../../../../../src/daemon/services/files/download.ts';
import { mountTmpfs } from '../../../../support/machine/mounts.ts';
import { needs } from '../../../../support/machine/needs.ts';
import { scratch } from '../../../../support/machine/scratch.ts';

const lanes = new Lanes({ limitMs: 10_000, threads: 4 });

/** The content of a small file, from memory or by the thread pool; null when it is too large to be read at once. */
async function read(path: string): Promise<{ content: Buffer; tag: string | null } | null> {
  await using download = await openDownload(path, lanes);
  if (!download.isSmall) return null;
  const content = download.read([{ start: 0, end: null }]);
  return Buffer.isBuffer(content) ? { content, tag: download.tag } : null;
}

/** The root file system and another one. */
const places = { 'on the root': scratch, elsewhere: () => mountTmpfs('4m') };

test('a small file of a tmpfs is read at once', () => {
  const path = join(mountTmpfs('4m'), 'file');
  writeFileSync(path, 'content');
  expect(native.readSmallFile(path, 1000)?.content.toString()).toBe('content');
});

test('the inode of a regular file is known at once, and of nothing else', () => {
  const directory = mountTmpfs('4m');
  const path = join(directory, 'file');
  writeFileSync(path, 'content');
  symlinkSync('file', `${path}.link`);
  execFileSync('mkfifo', [`${path}.pipe`]);
  const { dev, ino } = statSync(path);
  expect(native.inodeNow(path)).toBe(`${dev}:${ino}`);
  for (const other of [`${path}.link`, `${path}.pipe`, `${path}.absent`, directory])
    expect([other, native.inodeNow(other)]).toEqual([other, null]);
});

describe.each(Object.entries(places))('a file %s', (_, place) => {
  test.each([0, 1, 999, 131_072])('of %i bytes is read', async (size) => {
    const path = join(place(), 'file');
    const content = randomBytes(size);
    writeFileSync(path, content, { mode: 0o640 });
    const first = await read(path);
    expect(first?.content).toEqual(content);
    symlinkSync('file', `${path}.link`);
    // By a link it is read by the pool.
    expect(await read(`${path}.link`)).toEqual(first);
  });

  test('that is larger is not read at once', async () => {
    const path = join(place(), 'file');
    writeFileSync(path, randomBytes(131_073));
    expect(await read(path)).toBeNull();
  });

  test('with a hole is read', async () => {
    const path = join(place(), 'file');
    writeFileSync(path, 'x');
    truncateSync(path, 500);
    expect((await read(path))?.content).toEqual(Buffer.concat([Buffer.from('x'), Buffer.alloc(499)]));
  });

  test('that is a pipe or a directory is not opened', async () => {
    const directory = place();
    const [pipe, below] = [join(directory, 'pipe'), join(directory, 'below')];
    execFileSync('mkfifo', [pipe]);
    mkdirSync(below);
    await expect(read(pipe)).rejects.toThrow('is not a regular file');
    await expect(read(below)).rejects.toThrow('is a directory');
  });
});

/** What is read of the file after the kernel was asked to drop it from the page cache: posix_fadvise(2). */
function readCold(path: string) {
  execFileSync('dd', [`if=${path}`, 'iflag=nocache', 'count=0', 'status=none']);
  execFileSync('dd', [`of=${path}`, 'oflag=nocache', 'conv=notrunc,fdatasync', 'count=0', 'status=none']);
  return native.readSmallFile(path, 1000);
}

test('what is not in the page cache is not read by the event loop', async () => {
  // A tmpfs has nothing else.
  needs('ext4');
  const path = join(scratch(), 'cold');
  const content = randomBytes(1000);
  writeFileSync(path, content);
  // The kernel keeps pages that are still in use.
  let cold = readCold(path);
  for (let attempt = 0; attempt < 50 && cold; attempt++) cold = readCold(path);
  expect(cold).toBeNull();
  expect((await read(path))?.content).toEqual(content);
});

test('only what is small and without links is read by the event loop', () => {
  const path = join(scratch(), 'warm');
  const content = randomBytes(1000);
  writeFileSync(path, content);
  const { ino, mtimeNs } = statSync(path, { bigint: true });
  // On a file system without RWF_NOWAIT nothing is.
  const warm = native.readSmallFile(path, 1000);
  if (warm) expect(warm).toEqual({ content, inode: ino, modifiedNs: mtimeNs });
  expect(native.readSmallFile(path, 999)).toBeNull();
  symlinkSync('warm', `${path}.link`);
  expect(native.readSmallFile(`${path}.link`, 1000)).toBeNull();
  expect(native.readSmallFile('/proc/version', 1000)).toBeNull();
});

test('files of the kernel are read to their end, whatever size they have', async () => {
  expect((await read('/proc/version'))?.content).toEqual(readFileSync('/proc/version'));
  expect(await read('/proc/kallsyms')).toBeNull();
  const sys = '/sys/kernel/mm/transparent_hugepage/enabled';
  expect((await read(sys))?.content).toEqual(readFileSync(sys));
});

test('a missing file and an invalid path are errors', async () => {
  const directory = scratch();
  writeFileSync(join(directory, 'file'), 'x');
  for (const missing of [join(directory, 'missing'), join(directory, 'missing/file')]) {
    await expect(read(missing)).rejects.toThrow(`path '${missing}' does not exist`);
  }
  expect(() => native.readSmallFile('/x\0y', 1000)).toThrow('EINVAL');
  expect(() => native.readSmallFile(`/${'x'.repeat(5000)}`, 1000)).toThrow('ENAMETOOLONG');
});

test('no descriptor stays open', async () => {
  const directory = scratch();
  writeFileSync(join(directory, 'file'), 'x');
  const before = readdirSync('/proc/self/fd').length;
  for (const path of ['file', 'missing', '.']) {
    for (let i = 0; i < 20; i++) await read(join(directory, path)).catch(() => {});
  }
  expect(readdirSync('/proc/self/fd').length).toBeLessThanOrEqual(before);
});
