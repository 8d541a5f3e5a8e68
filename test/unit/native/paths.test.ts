import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { native } from '../../../src/daemon/linux/system/native.ts';
import { scratch } from '../../support/machine/scratch.ts';

/** Every function of the addon that takes a path. */
const calls: Readonly<Record<string, (path: string) => unknown>> = {
  readSmallFile: (path) => native.readSmallFile(path, 100),
  inodeNow: (path) => native.inodeNow(path),
  openPlace: (path) => native.openPlace(Buffer.from(path), true),
  openAt: (path) => native.openAt(0, Buffer.from(path), 0, null),
  makeDirectories: (path) => native.makeDirectories(0, Buffer.from(path), 0, 0, null),
  assertMayChange: (path) => native.assertMayChange(0, Buffer.from(path), 1),
  publishFile: (path) => native.publishFile(-1, 0, Buffer.from(path), 0, 0),
  removeTree: (path) => native.removeTree(path),
  readEntry: (path) => native.readEntry(Buffer.from(path), 'user.'),
  readDirectory: (path) => native.readDirectory(-1, Buffer.from(path), 'user.', null, false),
  'readDirectory below': (path) => native.readDirectory(0, Buffer.from(path), 'user.', null, false),
  setFilesystemFrozen: (path) => native.setFilesystemFrozen(path, false),
  'inotify.add': (path) => {
    const inotify = native.openInotify(() => undefined);
    onTestFinished(() => inotify.close());
    inotify.add(Buffer.from(path), 2);
  },
  connectDatagrams: (path) => native.connectDatagrams(path),
};

/** A path of `length` bytes that refers to `name` in `directory`. */
function padded(directory: string, name: string, length: number): string {
  const missing = length - directory.length - name.length - 1;
  return `${directory}${missing % 2 ? '/' : ''}${'/.'.repeat(missing >> 1)}/${name}`;
}

test.each(Object.keys(calls))('%s refuses a path that is too long or contains a NUL', async (name) => {
  const call = async (path: string) => calls[name]?.(path);
  for (const length of [4091, 4092, 4093, 4094, 4095]) {
    const path = `${padded(scratch(), 'x', length)}\u{1f600}/`;
    await expect(call(path), `${length} bytes`).rejects.toMatchObject({ code: 'ENAMETOOLONG' });
  }
  await expect(call(`${scratch()}\0/x`)).rejects.toMatchObject({ code: 'EINVAL' });
});

test('a path is not cut within a character', async () => {
  const directory = scratch();
  const kept = join(directory, 'kept');
  writeFileSync(kept, '');
  const path = `${padded(directory, 'kept', 4092)}\u{1f600}`;
  await expect((async () => native.removeTree(path))()).rejects.toMatchObject({ code: 'ENAMETOOLONG' });
  expect(existsSync(kept)).toBe(true);
});
