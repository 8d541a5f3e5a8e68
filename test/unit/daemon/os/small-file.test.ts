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
import { native } from '../../../../src/daemon/os/native.ts';
import { mountTmpfs } from '../../../support/mounts.ts';
import { scratch } from '../../../support/scratch.ts';

const LIMIT = 1000;

/** The root file system is read synchronously when cached, others always in the pool. */
const places = { 'on the root': scratch, elsewhere: () => mountTmpfs('4m') };

describe.each(Object.entries(places))('a file %s', (_, place) => {
  test.each([0, 1, 999, 1000])('of %i bytes is read', async (size) => {
    const path = join(place(), 'file');
    const content = randomBytes(size);
    writeFileSync(path, content, { mode: 0o640 });
    const { ino, mtimeNs } = statSync(path, { bigint: true });
    const expected = { content, size, inode: ino, modifiedNs: mtimeNs, mode: 0o100640 };
    expect(await native.readSmallFile(path, LIMIT)).toEqual(expected);
    symlinkSync('file', `${path}.link`);
    expect(await native.readSmallFile(`${path}.link`, LIMIT)).toEqual(expected);
  });

  test('that is larger has its status only', async () => {
    const path = join(place(), 'file');
    writeFileSync(path, randomBytes(1001));
    expect(await native.readSmallFile(path, LIMIT)).toMatchObject({ content: null, size: 1001 });
  });

  test('with a hole is read', async () => {
    const path = join(place(), 'file');
    writeFileSync(path, 'x');
    truncateSync(path, 500);
    const { content } = await native.readSmallFile(path, LIMIT);
    expect(content).toEqual(Buffer.concat([Buffer.from('x'), Buffer.alloc(499)]));
  });

  test('that is a pipe or a directory is not opened', async () => {
    const directory = place();
    const [pipe, below] = [join(directory, 'pipe'), join(directory, 'below')];
    execFileSync('mkfifo', [pipe]);
    mkdirSync(below);
    expect(await native.readSmallFile(pipe, LIMIT)).toMatchObject({ content: null, mode: 0o10644 });
    expect(await native.readSmallFile(below, LIMIT)).toMatchObject({ content: null, mode: 0o40755 });
  });
});

/** Reads the file after the kernel was asked to drop it from the page cache: posix_fadvise(2). */
function readCold(path: string) {
  execFileSync('dd', [`if=${path}`, 'iflag=nocache', 'count=0', 'status=none']);
  execFileSync('dd', [`of=${path}`, 'oflag=nocache', 'conv=notrunc,fdatasync', 'count=0', 'status=none']);
  return native.readSmallFile(path, LIMIT);
}

test('a file that is not in the page cache is read in the pool', async () => {
  const path = join(scratch(), 'cold');
  const content = randomBytes(1000);
  writeFileSync(path, content);
  let cold = readCold(path);
  // The kernel keeps pages that are still in use.
  for (let attempt = 0; attempt < 50 && !(cold instanceof Promise); attempt++) cold = readCold(path);
  expect((await cold).content).toEqual(content);
  const warm = native.readSmallFile(path, LIMIT);
  expect((await warm).content).toEqual(content);
  // Only when the scratch directory is on the root file system, as in CI.
  if (statSync(path).dev === statSync('/').dev) {
    expect([cold, warm].map((result) => result instanceof Promise)).toEqual([true, false]);
  }
});

test('files of the kernel are read to their end, whatever size they have', async () => {
  const version = await native.readSmallFile('/proc/version', LIMIT);
  expect(version).toMatchObject({ size: 0, content: readFileSync('/proc/version') });
  expect(await native.readSmallFile('/proc/kallsyms', LIMIT)).toMatchObject({ size: 0, content: null });
  const sys = '/sys/kernel/mm/transparent_hugepage/enabled';
  expect(await native.readSmallFile(sys, 4096)).toMatchObject({ size: 4096, content: readFileSync(sys) });
});

test('a missing file and an invalid path are errors', async () => {
  const directory = scratch();
  await expect(native.readSmallFile(join(directory, 'missing'), LIMIT)).rejects.toMatchObject({
    code: 'ENOENT',
    path: join(directory, 'missing'),
  });
  expect(() => native.readSmallFile('/x\0y', LIMIT)).toThrow('EINVAL');
  expect(() => native.readSmallFile(`/${'x'.repeat(5000)}`, LIMIT)).toThrow('ENAMETOOLONG');
});

test('no descriptor stays open', async () => {
  const directory = scratch();
  writeFileSync(join(directory, 'file'), 'x');
  const before = readdirSync('/proc/self/fd').length;
  for (const path of ['file', 'missing', '.']) {
    for (let i = 0; i < 20; i++) {
      await Promise.resolve(native.readSmallFile(join(directory, path), LIMIT)).catch(() => {});
    }
  }
  expect(readdirSync('/proc/self/fd').length).toBeLessThanOrEqual(before);
});
