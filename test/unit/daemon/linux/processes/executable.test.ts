import { chmodSync, chownSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { findExecutable } from '../../../../../src/daemon/linux/processes/executable.ts';
import { scratch } from '../../../../support/machine/scratch.ts';
import { ADA, ROOT } from '../../../../support/machine/users.ts';
import { testLanes } from '../../../../support/services/lanes.ts';

/** Directories `a` and `b` with the given files: mode, and owner if not root. */
function setUp(
  files: Readonly<Record<string, number | readonly [mode: number, uid: number, gid: number]>>,
): string {
  const root = scratch();
  for (const directory of ['a', 'b']) mkdirSync(join(root, directory));
  for (const [file, entry] of Object.entries(files)) {
    const [mode, uid, gid] = typeof entry === 'number' ? [entry, 0, 0] : entry;
    writeFileSync(join(root, file), '#!/bin/sh\n');
    chmodSync(join(root, file), mode);
    chownSync(join(root, file), uid, gid);
  }
  return root;
}

const inBoth = (root: string) => `${root}/a:${root}/b`;

describe('findExecutable', () => {
  test('returns the first match in PATH', async () => {
    const root = setUp({ 'a/tool': 0o755, 'b/tool': 0o755 });
    expect(await findExecutable('tool', inBoth(root), '/', ADA, testLanes)).toBe(`${root}/a/tool`);
  });

  test('skips directories, files without execute permission, and elements that are no directories', async () => {
    const root = setUp({ 'a/tool': 0o644, 'b/tool': 0o755, file: 0o755 });
    mkdirSync(join(root, 'c/tool'), { recursive: true });
    const path = `${root}/none:${root}/file:${root}/c:${inBoth(root)}`;
    expect(await findExecutable('tool', path, '/', ADA, testLanes)).toBe(`${root}/b/tool`);
  });

  test('follows links and skips dangling ones', async () => {
    const root = setUp({ 'b/real': 0o755 });
    symlinkSync('nowhere', join(root, 'a/tool'));
    symlinkSync('real', join(root, 'b/tool'));
    expect(await findExecutable('tool', inBoth(root), '/', ADA, testLanes)).toBe(`${root}/b/tool`);
  });

  test('takes an empty element for the cwd, and resolves relative ones against it', async () => {
    const root = setUp({ 'a/tool': 0o755, 'b/other': 0o755 });
    expect(await findExecutable('tool', '/none:', `${root}/a`, ADA, testLanes)).toBe(`${root}/a/tool`);
    expect(await findExecutable('tool', '::/none', `${root}/a`, ADA, testLanes)).toBe(`${root}/a/tool`);
    expect(await findExecutable('other', 'a:b', root, ADA, testLanes)).toBe(`${root}/b/other`);
  });

  test('without PATH searches the default directories', async () => {
    expect(await findExecutable('sh', undefined, '/', ADA, testLanes)).toMatch(/^(\/usr)?\/bin\/sh$/);
  });

  test('returns a command with a slash as it is', async () => {
    const root = setUp({ 'b/tool': 0o755 });
    expect(await findExecutable('./tool', `${root}/b`, `${root}/a`, ADA, testLanes)).toBe(`${root}/a/tool`);
    expect(await findExecutable('../b/tool', '', `${root}/a`, ADA, testLanes)).toBe(`${root}/b/tool`);
    expect(await findExecutable('/none/tool', '', '/', ADA, testLanes)).toBe('/none/tool');
  });
});

test('the search ends when its caller does not wait any more', async () => {
  const root = setUp({ 'b/tool': 0o755 });
  let looks = 0;
  const throwIfAborted = () => {
    looks++;
    if (looks === 3) throw new Error('aborted');
  };
  const found = findExecutable('tool', `/:/:${inBoth(root)}`, '/', ADA, testLanes, throwIfAborted);
  await expect(found).rejects.toThrow('aborted');
});

test('an element of PATH that no system call takes is passed over', async () => {
  const root = setUp({ 'b/tool': 0o755 });
  const path = `/${'x'.repeat(5000)}:${'y/'.repeat(2000)}:${inBoth(root)}`;
  expect(await findExecutable('tool', path, `/${'z'.repeat(200)}`, ADA, testLanes)).toBe(`${root}/b/tool`);
});

describe('an error of the search', () => {
  test('is not_found, or invalid_argument when a match is not executable', async () => {
    const root = setUp({ 'a/tool': 0o644 });
    await expect(findExecutable('none', inBoth(root), '/', ADA, testLanes)).rejects.toMatchObject({
      kind: 'not_found',
      message: "cannot start 'none': ENOENT: executable file not found in PATH",
    });
    await expect(findExecutable('tool', inBoth(root), '/', ADA, testLanes)).rejects.toMatchObject({
      kind: 'invalid_argument',
      message: "cannot start 'tool': EACCES: permission denied",
    });
  });
});

describe('execute permission is decided by the first class that matches', () => {
  const SUPPLEMENTARY = 2003;
  test.each([
    ['the owner', [0o100, ADA.uid, 0], ADA, true],
    ['the owner, when only others may', [0o011, ADA.uid, 0], ADA, false],
    ['the primary group', [0o010, 0, ADA.gid], ADA, true],
    ['a supplementary group', [0o010, 0, SUPPLEMENTARY], ADA, true],
    ['a supplementary group, when only others may', [0o701, 0, SUPPLEMENTARY], ADA, false],
    ['others', [0o001, 0, 0], ADA, true],
    ['others, when only the owner and the group may', [0o770, 0, 0], ADA, false],
    ['root, when anybody may', [0o001, ADA.uid, 0], ROOT, true],
    ['root, when nobody may', [0o666, 0, 0], ROOT, false],
  ] as const)('%s', async (_name, file, user, allowed) => {
    const root = setUp({ 'a/tool': file });
    const found = findExecutable('tool', `${root}/a`, '/', user, testLanes).then(
      () => true,
      () => false,
    );
    expect(await found).toBe(allowed);
  });
});
