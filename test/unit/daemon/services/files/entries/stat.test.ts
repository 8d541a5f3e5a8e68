import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  lchownSync,
  lutimesSync,
  mkdirSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { setAttributeSync } from 'fs-xattr';
import { describe, expect, test } from 'vitest';
import { stat } from '../../../../../../src/daemon/services/files/entries/stat.ts';
import { linkOfStranger } from '../../../../../support/attackers/exchanger.ts';
import { scratch } from '../../../../../support/machine/scratch.ts';
import { testEntries } from '../../../../../support/machine/users.ts';

/** A directory with a file of ada's, and a function that calls Stat below it. */
function setUp() {
  const root = scratch();
  const entries = testEntries(scratch());
  const path = join(root, 'file.txt');
  writeFileSync(path, 'twelve bytes');
  chmodSync(path, 0o640);
  chownSync(path, 2001, 2003);
  return { root, path, look: (name: string) => stat(join(root, name), entries) };
}

describe('Stat of a file', () => {
  test('returns all members', async () => {
    const { path, look } = setUp();
    execFileSync('touch', ['-d', '2026-01-02T03:04:05.123456789Z', path]);
    expect(await look('file.txt')).toEqual({
      name: 'file.txt',
      type: 'file',
      path,
      size: 12n,
      mode: 0o640,
      permissions: '-rw-r-----',
      owner: 'ada',
      group: 'analysts',
      modifiedNs: BigInt(Date.UTC(2026, 0, 2, 3, 4, 5)) * 1_000_000n + 123_456_789n,
      symlinkTarget: null,
      metadata: {},
    });
  });

  test('returns a time before 1970', async () => {
    const { path, look } = setUp();
    execFileSync('touch', ['-d', '1969-12-31T23:59:58.25Z', path]);
    expect((await look('file.txt')).modifiedNs).toBe(-1_750_000_000n);
  });

  test('returns numbers for an owner without a name', async () => {
    const { path, look } = setUp();
    chownSync(path, 4711, 4_000_000_000);
    expect(await look('file.txt')).toMatchObject({ owner: '4711', group: '4000000000' });
  });

  test('returns a size above 4 GiB', async () => {
    const { path, look } = setUp();
    execFileSync('truncate', ['-s', '5G', path]);
    expect((await look('file.txt')).size).toBe(5n * 1024n ** 3n);
  });

  test('returns the metadata without other attributes', async () => {
    const { path, look } = setUp();
    setAttributeSync(path, 'user.svc.purpose', 'test ü');
    setAttributeSync(path, 'user.svc.empty', '');
    setAttributeSync(path, 'user.svc.binary', Buffer.from([0xff, 0xfe]));
    setAttributeSync(path, 'user.svc.', 'a key of no bytes');
    setAttributeSync(path, 'user.other', 'x');
    expect((await look('file.txt')).metadata).toEqual({
      purpose: 'test ü',
      empty: '',
      '': 'a key of no bytes',
    });
  });

  test('returns more and larger attributes than usual', async () => {
    const root = scratch('/dev/shm');
    const path = join(root, 'file');
    writeFileSync(path, '');
    const keys = Array.from({ length: 40 }, (_, index) => `key-${index}`.padEnd(100, 'x'));
    for (const key of keys) setAttributeSync(path, `user.svc.${key}`, key);
    setAttributeSync(path, 'user.svc.large', 'v'.repeat(30_000));
    const { metadata } = await stat(path, testEntries(scratch()));
    expect(metadata).toEqual({
      ...Object.fromEntries(keys.map((key) => [key, key])),
      large: 'v'.repeat(30_000),
    });
  });
});

describe('Stat of another type', () => {
  test('a directory', async () => {
    const { root, look } = setUp();
    mkdirSync(join(root, 'directory'));
    setAttributeSync(join(root, 'directory'), 'user.svc.a', 'b');
    expect(await look('directory')).toMatchObject({
      name: 'directory',
      type: 'directory',
      mode: 0o755,
      permissions: 'drwxr-xr-x',
      metadata: { a: 'b' },
    });
  });

  test('the root directory', async () => {
    expect(await stat('/', testEntries(scratch()))).toMatchObject({
      name: '/',
      path: '/',
      type: 'directory',
    });
  });

  test('does not open a fifo', async () => {
    const { root, look } = setUp();
    execFileSync('mkfifo', ['-m', '600', join(root, 'fifo')]);
    expect(await look('fifo')).toMatchObject({ type: 'unspecified', mode: 0o600, permissions: 'prw-------' });
  });

  test('a device, and files of /proc and /sys', async () => {
    const entries = testEntries(scratch());
    expect(await stat('/dev/null', entries)).toMatchObject({
      type: 'unspecified',
      permissions: 'Dcrw-rw-rw-',
    });
    expect(await stat('/proc/self/status', entries)).toMatchObject({ type: 'file', size: 0n });
    expect(await stat('/sys/kernel', entries)).toMatchObject({ type: 'directory' });
  });
});

describe('Stat of a link', () => {
  test('returns the link itself, but type, mode and metadata of its target', async () => {
    const { root, path, look } = setUp();
    setAttributeSync(path, 'user.svc.of', 'target');
    symlinkSync('file.txt', join(root, 'near'));
    symlinkSync('./near', join(root, 'link'));
    lchownSync(join(root, 'link'), 0, 2002);
    lutimesSync(join(root, 'link'), 1, 2);
    expect(await look('link')).toEqual({
      name: 'link',
      type: 'file',
      path: join(root, 'link'),
      size: 6n,
      mode: 0o640,
      permissions: 'Lrwxrwxrwx',
      owner: 'root',
      group: 'pioneers',
      modifiedNs: 2_000_000_000n,
      symlinkTarget: path,
      metadata: { of: 'target' },
    });
  });

  test('returns no metadata that the owner of the link may not read', async () => {
    const { root, path, look } = setUp();
    chmodSync(root, 0o755);
    setAttributeSync(path, 'user.svc.of', 'target');
    linkOfStranger('file.txt', join(root, 'link'));
    const link = await look('link');
    expect(link).toMatchObject({ type: 'file', mode: 0o640, symlinkTarget: path });
    expect(link.metadata).toEqual({});
    chmodSync(path, 0o644);
    expect((await look('link')).metadata).toEqual({ of: 'target' });
  });

  test('has the type of a directory for a link to one', async () => {
    const { root, look } = setUp();
    symlinkSync('.', join(root, 'link'));
    expect(await look('link')).toMatchObject({ type: 'directory', mode: 0o700, symlinkTarget: root });
  });

  test.each([
    ['dangling', 'nowhere'],
    ['cyclic', 'cyclic'],
    ['below a file', 'file.txt/below'],
  ])('%s', async (name, target) => {
    const { root, look } = setUp();
    symlinkSync(target, join(root, name));
    expect(await look(name)).toMatchObject({
      name,
      type: 'unspecified',
      mode: 0,
      permissions: 'Lrwxrwxrwx',
      symlinkTarget: join(root, name),
    });
  });

  test('follows links within the path', async () => {
    const { root, look } = setUp();
    symlinkSync(root, join(root, 'link'));
    expect(await look('link/file.txt')).toMatchObject({ type: 'file', path: join(root, 'link/file.txt') });
  });
});

describe('names', () => {
  test.each(['two\nlines', 'ü', '日本'.repeat(42), 'n'.repeat(255), ' ', '"quoted" \\ \u0001'])(
    '%j',
    async (name) => {
      const { root, look } = setUp();
      writeFileSync(join(root, name), '');
      expect(await look(name)).toMatchObject({ name, path: join(root, name), type: 'file' });
    },
  );
});

describe('errors', () => {
  const longSegment = 'n'.repeat(256);
  test.each([
    ['nothing', 'not_found', 'path not found'],
    ['nothing/below', 'not_found', 'path not found'],
    ['file.txt/below', 'not_found', 'path not found'],
    ['cycle/below', 'failed_precondition', 'too many levels of symbolic links in path'],
    [longSegment, 'invalid_argument', 'path is too long'],
    ['d/'.repeat(2100), 'invalid_argument', 'path is too long'],
  ])('%.20s…', async (name, kind, text) => {
    const { root, look } = setUp();
    symlinkSync('cycle', join(root, 'cycle'));
    // Of a long text the middle is left out.
    const start = `${text}: '${join(root, name).slice(0, 300)}`;
    await expect(look(name)).rejects.toMatchObject({ kind, message: expect.stringContaining(start) });
  });
});
