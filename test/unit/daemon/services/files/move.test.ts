import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { open } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { getAttributeSync, setAttributeSync } from 'fs-xattr';
import { describe, expect, onTestFinished, test } from 'vitest';
import { Lanes } from '../../../../../src/daemon/linux/lanes/lanes.ts';
import { native } from '../../../../../src/daemon/linux/system/native.ts';
import { move } from '../../../../../src/daemon/services/files/move.ts';
import { mountTmpfs } from '../../../../support/machine/mounts.ts';
import { needs } from '../../../../support/machine/needs.ts';
import { scratch } from '../../../../support/machine/scratch.ts';
import { ADA, testEntries } from '../../../../support/machine/users.ts';
import { NEVER } from '../../../../support/services/lanes.ts';

const moved = (source: string, destination: string) =>
  move(source, destination, ADA, testEntries(scratch()), NEVER);

/** A directory whose subdirectory `tree` contains a mount of a small file system. */
function mounted(): [root: string, mount: string] {
  needs('mounts');
  const root = scratch();
  const mount = join(root, 'tree/mount');
  mkdirSync(mount, { recursive: true });
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'none', mount]);
  onTestFinished(() => void execFileSync('umount', [mount]));
  return [root, mount];
}

describe('within a file system', () => {
  test('keeps owner, mode and metadata, and returns the entry', async () => {
    const root = scratch();
    writeFileSync(join(root, 'from'), 'abc');
    setAttributeSync(join(root, 'from'), 'user.svc.k', 'v');
    const { ino } = statSync(join(root, 'from'));
    expect(await moved(join(root, 'from'), join(root, 'to'))).toMatchObject({
      name: 'to',
      path: join(root, 'to'),
      size: 3n,
      owner: 'root',
      metadata: { k: 'v' },
    });
    expect(statSync(join(root, 'to')).ino).toBe(ino);
    expect(readdirSync(root)).toEqual(['to']);
  });

  test('makes missing parents, which belong to the user', async () => {
    const root = scratch();
    writeFileSync(join(root, 'from'), '');
    await moved(join(root, 'from'), join(root, 'a/b/to'));
    expect(statSync(join(root, 'a/b'))).toMatchObject({ uid: 2001, gid: 2002 });
    expect(statSync(join(root, 'a/b/to'))).toMatchObject({ uid: 0, gid: 0 });
  });

  test('moves a link itself, not its target', async () => {
    const root = scratch();
    writeFileSync(join(root, 'file'), '');
    symlinkSync('file', join(root, 'link'));
    symlinkSync('nowhere', join(root, 'dangling'));
    await moved(join(root, 'link'), join(root, 'link2'));
    expect(await moved(join(root, 'dangling'), join(root, 'dangling2'))).toMatchObject({
      type: 'unspecified',
    });
    expect(readdirSync(root).sort()).toEqual(['dangling2', 'file', 'link2']);
    expect(readlinkSync(join(root, 'link2'))).toBe('file');
  });

  test('replaces a file or an empty directory', async () => {
    const root = scratch();
    for (const name of ['a', 'b']) writeFileSync(join(root, name), name);
    await moved(join(root, 'a'), join(root, 'b'));
    expect(readFileSync(join(root, 'b'), 'utf8')).toBe('a');
    mkdirSync(join(root, 'full/file'), { recursive: true });
    mkdirSync(join(root, 'empty'));
    await moved(join(root, 'full'), join(root, 'empty'));
    expect(readdirSync(join(root, 'empty'))).toEqual(['file']);
  });

  test('succeeds when source and destination are the same', async () => {
    const path = join(scratch(), 'file');
    writeFileSync(path, 'x');
    expect(await moved(path, path)).toMatchObject({ path, size: 1n });
  });
});

describe('errors', () => {
  test.each([
    ['nothing', 'a/b', 'not_found', "path not found: 'R/nothing'"],
    ['file/below', 'a/b', 'not_found', "path not found: 'R/file/below'"],
    ['file', 'file/below', 'invalid_argument', "path is not a directory: 'R/file'"],
    ['full', 'full/x', 'invalid_argument', "cannot move a directory into itself: 'R/full' to 'R/full/x'"],
    [
      'file',
      'full',
      'invalid_argument',
      "cannot replace a directory by a file or a file by a directory: 'R/full'",
    ],
    [
      'full',
      'file',
      'invalid_argument',
      "cannot replace a directory by a file or a file by a directory: 'R/file'",
    ],
    ['other', 'full', 'already_exists', "directory is not empty: 'R/full'"],
  ])('%s to %s is an error', async (source, destination, kind, message) => {
    const root = scratch();
    writeFileSync(join(root, 'file'), '');
    mkdirSync(join(root, 'full/y'), { recursive: true });
    mkdirSync(join(root, 'other'));
    await expect(moved(join(root, source), join(root, destination))).rejects.toMatchObject({
      kind,
      message: message.replaceAll('R/', `${root}/`),
    });
    expect(readdirSync(root).sort()).toEqual(['file', 'full', 'other']);
  });

  test('a mount point is in use', async () => {
    const [root, mount] = mounted();
    await expect(moved(mount, join(root, 'elsewhere'))).rejects.toMatchObject({
      kind: 'failed_precondition',
      message: `path is in use: '${join(root, 'elsewhere')}'`,
    });
  });
});

describe('to another file system', () => {
  /** Two directories on different file systems. */
  function twoFileSystems(): [string, string] {
    const roots: [string, string] = [scratch(), scratch('/dev/shm')];
    expect(statSync(roots[0]).dev).not.toBe(statSync(roots[1]).dev);
    return roots;
  }

  test('keeps owner, mode, attributes and times of a file', async () => {
    const [here, there] = twoFileSystems();
    const source = join(here, 'file');
    writeFileSync(source, 'content');
    chownSync(source, 2001, 2003);
    chmodSync(source, 0o751);
    setAttributeSync(source, 'user.svc.k', 'v');
    setAttributeSync(source, 'user.other', Buffer.from([0xff]));
    execFileSync('touch', ['-d', '2020-01-02T03:04:05.123456789Z', source]);
    const before = lstatSync(source, { bigint: true });
    const entry = await moved(source, join(there, 'new/file'));
    expect(entry).toMatchObject({
      owner: 'ada',
      group: 'analysts',
      permissions: '-rwxr-x--x',
      size: 7n,
      metadata: { k: 'v' },
      modifiedNs: before.mtimeNs,
    });
    expect(getAttributeSync(entry.path, 'user.other')).toEqual(Buffer.from([0xff]));
    expect(readFileSync(entry.path, 'utf8')).toBe('content');
    expect(readdirSync(here)).toEqual([]);
    expect(readdirSync(dirname(entry.path))).toEqual(['file']);
  });

  test('keeps times before 1970 and attributes whose names are not UTF-8', async () => {
    const [here, there] = twoFileSystems();
    const source = join(here, 'file');
    writeFileSync(source, '');
    execFileSync('touch', ['-d', '1960-01-02T03:04:05.25Z', source]);
    const name = Buffer.from('user.\xff', 'latin1');
    await using file = await open(source);
    await native.writeAttribute(file.fd, name, Buffer.alloc(0));
    const { path, modifiedNs } = await moved(source, join(there, 'file'));
    expect(modifiedNs).toBe(lstatSync(path, { bigint: true }).mtimeNs);
    expect(modifiedNs).toBe(BigInt(Date.parse('1960-01-02T03:04:05.250Z')) * 1_000_000n);
    await using copy = await open(path);
    expect((await native.readAttributes(copy.fd, 'user.')).subarray(8)).toEqual(name);
  });

  test('keeps links, hard links, empty directories and odd names of a tree', async () => {
    const [here, there] = twoFileSystems();
    const source = join(here, 'tree');
    mkdirSync(join(source, 'sub/empty'), { recursive: true, mode: 0o500 });
    writeFileSync(join(source, 'sub/one'), 'same');
    linkSync(join(source, 'sub/one'), join(source, 'two'));
    symlinkSync('../outside', join(source, 'link'));
    execFileSync('touch', ['-h', '-d', '2001-01-01T00:00:00.5Z', join(source, 'link')]);
    writeFileSync(Buffer.concat([Buffer.from(`${source}/`), Buffer.from([0xff, 0x0a])]), 'odd');
    const destination = join(there, 'tree');
    await moved(source, destination);

    expect(existsSync(source)).toBe(false);
    expect(statSync(join(destination, 'sub')).mode & 0o777).toBe(0o500);
    expect(statSync(join(destination, 'two')).ino).toBe(statSync(join(destination, 'sub/one')).ino);
    expect(readdirSync(join(destination, 'sub')).sort()).toEqual(['empty', 'one']);
    expect(readlinkSync(join(destination, 'link'))).toBe('../outside');
    expect(lstatSync(join(destination, 'link'), { bigint: true }).mtimeNs).toBe(978_307_200_500_000_000n);
    expect(
      readFileSync(Buffer.concat([Buffer.from(`${destination}/`), Buffer.from([0xff, 0x0a])]), 'utf8'),
    ).toBe('odd');
  });

  test('replaces a file', async () => {
    const [here, there] = twoFileSystems();
    writeFileSync(join(here, 'a'), 'new');
    writeFileSync(join(there, 'a'), 'old');
    await moved(join(here, 'a'), join(there, 'a'));
    expect(readFileSync(join(there, 'a'), 'utf8')).toBe('new');
  });

  test('changes nothing when there is no space', async () => {
    const [root, mount] = mounted();
    writeFileSync(join(root, 'large'), Buffer.alloc(100_000));
    await expect(moved(join(root, 'large'), join(mount, 'large'))).rejects.toMatchObject({
      kind: 'no_space',
      message: `not enough disk space or inodes for path: '${join(mount, 'large')}'`,
    });
    expect(readdirSync(mount)).toEqual([]);
    expect(statSync(join(root, 'large')).size).toBe(100_000);
  });

  test('leaves nothing of many files for which there is no space', async () => {
    needs('mounts');
    const [root, mount] = [scratch(), mountTmpfs('4m')];
    mkdirSync(join(root, 'tree'));
    for (let index = 0; index < 1500; index++) writeFileSync(join(root, `tree/${index}`), Buffer.alloc(4096));
    // With places for several removals, as in the daemon.
    const entries = { ...testEntries(scratch()), lanes: new Lanes({ limitMs: 60_000, threads: 16 }) };
    const result = move(join(root, 'tree'), join(mount, 'tree'), ADA, entries, NEVER);
    await expect(result).rejects.toMatchObject({ kind: 'no_space' });
    expect(readdirSync(mount)).toEqual([]);
    expect(readdirSync(join(root, 'tree'))).toHaveLength(1500);
  });

  test('keeps the source and leaves nothing behind when something cannot be copied or replaced', async () => {
    const [here, there] = twoFileSystems();
    mkdirSync(join(here, 'tree'));
    writeFileSync(join(here, 'tree/file'), '');
    execFileSync('mkfifo', [join(here, 'tree/fifo')]);
    await expect(moved(join(here, 'tree'), join(there, 'tree'))).rejects.toMatchObject({
      kind: 'failed_precondition',
      message: `cannot move a fifo, socket or device to another file system: '${join(here, 'tree/fifo')}'`,
    });
    mkdirSync(join(there, 'full/x'), { recursive: true });
    await expect(moved(join(here, 'tree/file'), join(there, 'full'))).rejects.toMatchObject({
      kind: 'invalid_argument',
    });
    expect(readdirSync(join(here, 'tree')).sort()).toEqual(['fifo', 'file']);
    expect(readdirSync(there)).toEqual(['full']);
  });

  test('a directory that cannot be removed, as something is mounted in it, stays where it is', async () => {
    const [root, mount] = mounted();
    writeFileSync(join(mount, 'file'), 'mounted');
    await expect(moved(dirname(mount), join(scratch('/dev/shm'), 'tree'))).rejects.toMatchObject({
      kind: 'failed_precondition',
    });
    expect(readdirSync(root)).toEqual(['tree']);
    expect(readdirSync(dirname(mount))).toEqual(['mount']);
  });

  test('refuses to move a directory into a mount below itself', async () => {
    const [root, mount] = mounted();
    await expect(moved(dirname(mount), join(mount, 'a/b'))).rejects.toMatchObject({
      kind: 'invalid_argument',
      message: `cannot move a directory into itself: '${dirname(mount)}' to '${join(mount, 'a/b')}'`,
    });
    expect(readdirSync(root)).toEqual(['tree']);
  });
});
