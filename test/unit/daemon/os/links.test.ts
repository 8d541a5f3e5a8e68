import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { followLinks } from '../../../../src/daemon/os/links.ts';
import { scratch } from '../../../support/scratch.ts';

test('files, links, chains of links, and what is not there yet', async () => {
  const directory = scratch();
  const at = (name: string) => join(directory, name);
  mkdirSync(at('real/sub'), { recursive: true });
  writeFileSync(at('real/file'), '');
  symlinkSync('real', at('alias'));
  symlinkSync('alias/file', at('chain'));
  symlinkSync('missing', at('dangling'));
  symlinkSync('dangling', at('dangling-chain'));
  symlinkSync('../new', at('real/sub/up'));
  symlinkSync('real/sub', at('deep'));
  symlinkSync(at('absolute-target'), at('absolute'));

  expect(await followLinks(at('real/file'))).toBe(at('real/file'));
  expect(await followLinks(at('chain'))).toBe(at('real/file'));
  expect(await followLinks(at('dangling-chain'))).toBe(at('missing'));
  expect(await followLinks(at('deep/up'))).toBe(at('real/new'));
  expect(await followLinks(at('absolute'))).toBe(at('absolute-target'));
  expect(await followLinks(at('new/below'))).toBe(at('new/below'));
});

test('a circle, and a file taken for a directory', async () => {
  const directory = scratch();
  symlinkSync('b', join(directory, 'a'));
  symlinkSync('a', join(directory, 'b'));
  await expect(followLinks(join(directory, 'a'))).rejects.toMatchObject({ code: 'ELOOP' });
  writeFileSync(join(directory, 'file'), '');
  await expect(followLinks(join(directory, 'file/below'))).rejects.toMatchObject({ code: 'ENOTDIR' });
});
