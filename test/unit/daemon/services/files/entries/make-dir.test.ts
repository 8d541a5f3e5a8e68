import { mkdirSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { makeDir } from '../../../../../../src/daemon/services/files/entries/make-dir.ts';
import { scratch } from '../../../../../support/machine/scratch.ts';
import { ADA, testEntries } from '../../../../../support/machine/users.ts';

const make = (path: string) => makeDir(path, ADA, testEntries(scratch()));

test('makes a directory and its missing parents, which belong to the user', async () => {
  const path = join(scratch(), 'a/b');
  expect(await make(path)).toMatchObject({
    name: 'b',
    path,
    type: 'directory',
    permissions: 'drwxr-xr-x',
    owner: 'ada',
    group: 'pioneers',
  });
  expect(statSync(join(path, '..'))).toMatchObject({ uid: 2001, gid: 2002 });
});

test.each(['directory', 'link'])('an existing directory is refused: %s', async (name) => {
  const root = scratch();
  mkdirSync(join(root, 'directory'));
  symlinkSync('directory', join(root, 'link'));
  await expect(make(join(root, name))).rejects.toMatchObject({
    kind: 'already_exists',
    message: `directory already exists: '${join(root, name)}'`,
  });
});

test.each(['file', 'to-file', 'dangling', 'file/below'])('an existing file is refused: %s', async (name) => {
  const root = scratch();
  writeFileSync(join(root, 'file'), '');
  symlinkSync('file', join(root, 'to-file'));
  symlinkSync('nowhere', join(root, 'dangling'));
  await expect(make(join(root, name))).rejects.toMatchObject({
    kind: 'invalid_argument',
    message: `path is not a directory: '${join(root, name)}'`,
  });
});

test('errors of the file system are returned', async () => {
  await expect(make('/proc/envd-test')).rejects.toMatchObject({ kind: 'not_found' });
  await expect(make(join(scratch(), 'n'.repeat(256)))).rejects.toMatchObject({ kind: 'invalid_argument' });
});
