import { mkdirSync, readdirSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { ensureDirectory, resolvePath } from '../../../../src/daemon/os/paths.ts';
import { scratch } from '../../../support/scratch.ts';
import { ADA } from '../../../support/users.ts';

describe('resolvePath', () => {
  test.each([
    ['/absolute/file', '/absolute/file'],
    ['/a//b/./c/../d/', '/a/b/d'],
    ['/../..', '/'],
    ['/', '/'],
    ['relative/file', '/home/ada/relative/file'],
    ['../bob', '/home/bob'],
    ['.', '/home/ada'],
    ['~', '/home/ada'],
    ['~/', '/home/ada'],
    ['~/x', '/home/ada/x'],
    ['./~x', '/home/ada/~x'],
    ['a~', '/home/ada/a~'],
    [' ', '/home/ada/ '],
    ['', '/home/ada'],
  ])('%j is %j', (path, resolved) => {
    expect(resolvePath(path, ADA, null)).toBe(resolved);
  });

  test('takes the default directory for an empty path only', () => {
    expect(resolvePath('', ADA, '/srv/')).toBe('/srv');
    expect(resolvePath('', ADA, 'below')).toBe('/home/ada/below');
    expect(resolvePath('', ADA, '~/work')).toBe('/home/ada/work');
    expect(resolvePath('x', ADA, '/srv')).toBe('/home/ada/x');
  });

  test.each(['~bob', '~bob/x', '~~'])('refuses the home of another user: %j', (path) => {
    expect(() => resolvePath(path, ADA, null)).toThrow(
      expect.objectContaining({
        kind: 'invalid_argument',
        message: `cannot expand home of another user in path: '${path}'`,
      }),
    );
  });

  test('refuses a NUL byte', () => {
    expect(() => resolvePath('/a\0b', ADA, null)).toThrow(
      expect.objectContaining({ kind: 'invalid_argument', message: 'path contains a NUL byte' }),
    );
  });
});

describe('ensureDirectory', () => {
  test('makes what is missing, the user’s and with mode 0755, and leaves the rest alone', async () => {
    const root = scratch();
    mkdirSync(join(root, 'there'), { mode: 0o700 });
    expect(await ensureDirectory(join(root, 'there/a/b'), ADA)).toBe(true);
    for (const made of ['there/a', 'there/a/b']) {
      const { uid, gid, mode } = statSync(join(root, made));
      expect([uid, gid, mode & 0o7777]).toEqual([2001, 2002, 0o755]);
    }
    const { uid, mode } = statSync(join(root, 'there'));
    expect([uid, mode & 0o7777]).toEqual([0, 0o700]);
  });

  test('is content with a directory, or a link to one', async () => {
    const root = scratch();
    symlinkSync(root, join(root, 'link'));
    expect(await ensureDirectory(root, ADA)).toBe(false);
    expect(await ensureDirectory('/', ADA)).toBe(false);
    expect(await ensureDirectory(join(root, 'link'), ADA)).toBe(false);
    expect(await ensureDirectory(join(root, 'link/below'), ADA)).toBe(true);
    expect(statSync(join(root, 'below')).uid).toBe(2001);
  });

  test.each(['file', 'file/below', 'file/below/deep', 'dangling', 'dangling/below'])(
    'refuses where there is something else: %s',
    async (path) => {
      const root = scratch();
      writeFileSync(join(root, 'file'), '');
      symlinkSync(join(root, 'nowhere'), join(root, 'dangling'));
      await expect(ensureDirectory(join(root, path), ADA)).rejects.toMatchObject({
        kind: 'invalid_argument',
        message: expect.stringContaining('path is not a directory'),
      });
      expect(readdirSync(root).sort()).toEqual(['dangling', 'file']);
    },
  );

  test('ends where the file system makes no directories', async () => {
    await expect(ensureDirectory('/proc/envd-test/below', ADA)).rejects.toMatchObject({ code: 'ENOENT' });
  });

  test('makes a directory once for many who want it', async () => {
    const path = join(scratch(), 'a/b/c');
    const made = await Promise.all(Array.from({ length: 20 }, () => ensureDirectory(path, ADA)));
    expect(made.filter(Boolean)).toHaveLength(1);
    expect(statSync(path).isDirectory()).toBe(true);
  });

  test('goes near the longest path', async () => {
    const segment = 'd'.repeat(200);
    let path = scratch();
    while (path.length + 1 + segment.length < 4095) path = join(path, segment);
    expect(await ensureDirectory(path, ADA)).toBe(true);
    await expect(ensureDirectory(join(path, segment), ADA)).rejects.toMatchObject({ code: 'ENAMETOOLONG' });
  });
});
