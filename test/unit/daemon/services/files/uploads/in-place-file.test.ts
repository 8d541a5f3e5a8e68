import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { PathHandle } from '../../../../../../src/daemon/linux/files/place.ts';
import { REPLACE } from '../../../../../../src/daemon/services/files/entries/file-change.ts';
import { InPlaceFile } from '../../../../../../src/daemon/services/files/uploads/in-place-file.ts';
import { scratch } from '../../../../../support/machine/scratch.ts';
import { ADA } from '../../../../../support/machine/users.ts';
import { testLanes } from '../../../../../support/services/lanes.ts';

const signal = new AbortController().signal;
const bytes = (text: string) => [Buffer.from(text)];

async function placeOf(path: string): Promise<PathHandle> {
  const place = await PathHandle.open(path, true, testLanes);
  onTestFinished(() => place[Symbol.dispose]());
  return place;
}

const NO_METADATA = { values: {}, prefix: 'user.svc.' };

test('a new file belongs to the user, with its directories and metadata', async () => {
  const path = join(scratch(), 'a/b/new');
  await using file = new InPlaceFile(await placeOf(path), ADA, REPLACE);
  await file.write(bytes('one '), signal);
  await file.write(bytes('two'), signal);
  expect(await file.commit({ values: { key: 'value' }, prefix: 'user.svc.' }, true)).toBe(true);
  expect(readFileSync(path, 'utf8')).toBe('one two');
  expect(statSync(path)).toMatchObject({ uid: 2001, gid: 2002 });
  expect(statSync(join(path, '..'))).toMatchObject({ uid: 2001, gid: 2002 });
});

test('a new file that is not committed is removed', async () => {
  const path = join(scratch(), 'new');
  {
    await using file = new InPlaceFile(await placeOf(path), ADA, REPLACE);
    await file.write(bytes('half'), signal);
    expect(existsSync(path)).toBe(true);
  }
  expect(existsSync(path)).toBe(false);
});

test('an existing file is unchanged before the first write, and keeps its owner', async () => {
  const path = join(scratch(), 'old');
  writeFileSync(path, 'a long old content');
  {
    await using _untouched = new InPlaceFile(await placeOf(path), ADA, REPLACE);
  }
  expect(readFileSync(path, 'utf8')).toBe('a long old content');
  await using file = new InPlaceFile(await placeOf(path), ADA, REPLACE);
  await file.write(bytes('new'), signal);
  await file.commit(NO_METADATA, false);
  expect(readFileSync(path, 'utf8')).toBe('new');
  expect(statSync(path).uid).toBe(0);
});

test('an empty upload makes an empty file', async () => {
  const path = join(scratch(), 'empty');
  await using file = new InPlaceFile(await placeOf(path), ADA, REPLACE);
  await file.commit(NO_METADATA, false);
  expect(statSync(path).size).toBe(0);
});

test.each([null, 0o600])(
  'others cannot read a new file before it is committed with mode %o',
  async (mode) => {
    const path = join(scratch(), 'new');
    await using file = new InPlaceFile(await placeOf(path), ADA, { ...REPLACE, mode });
    await file.write(bytes('secret'), signal);
    expect(statSync(path).mode & 0o777).toBe(0o600);
    await file.commit(NO_METADATA, false);
    expect(statSync(path).mode & 0o777).toBe(mode ?? 0o644);
  },
);

test('a directory is refused', async () => {
  const path = join(scratch(), 'directory');
  mkdirSync(path);
  await using file = new InPlaceFile(await placeOf(path), ADA, REPLACE);
  await expect(file.write(bytes('x'), signal)).rejects.toMatchObject({ code: 'EISDIR' });
});
