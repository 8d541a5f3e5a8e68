import { mkdirSync, mkdtempDisposableSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { bytePath } from '../../../../../../src/daemon/linux/paths/byte-path.ts';
import { Ledger } from '../../../../../../src/daemon/services/watch/network/ledger.ts';

test.each([
  [false, 10, ['directory', 'file']],
  [true, 10, ['directory', 'file', 'directory/below']],
  [true, 2, ['directory', 'file', 'directory/below']],
])('recursive: %s, at most %d: the entries that are reported', async (recursive, limit, expected) => {
  using root = mkdtempDisposableSync(join(tmpdir(), 'envd-ledger-'));
  mkdirSync(join(root.path, 'directory', 'below'), { recursive: true });
  writeFileSync(join(root.path, 'file'), '');
  const ledger = new Ledger(bytePath(Buffer.from(root.path)));
  await ledger.fill(recursive, limit);
  expect(ledger.names().sort()).toEqual(expected.toSorted());
});

/** Removes the files of several directories one by one, then the directories, and returns the CPU time in microseconds. */
function removing(ledgers: number, directories: number, each: number): number {
  const known = { inode: 0, isDirectory: false, size: 0, modifiedMs: 0, rights: '' };
  const all = Array.from({ length: ledgers }, () => new Ledger('/nowhere'));
  const names = Array.from({ length: directories }, (_, index) => `d${index}`);
  const files = names.flatMap((name) => Array.from({ length: each }, (_, index) => `${name}/${index}`));
  for (const ledger of all)
    for (const [inode, name] of [...names, ...files].entries()) ledger.set(name, { ...known, inode });
  const before = process.threadCpuUsage();
  for (const ledger of all) for (const name of [...files, ...names]) ledger.remove(name);
  const { user, system } = process.threadCpuUsage(before);
  expect(all.every(({ size }) => size === 0)).toBe(true);
  return user + system;
}

test('removing each of 50,000 entries takes as long as removing as many from small trees', () => {
  const small = removing(100, 10, 49);
  expect(removing(1, 1000, 49)).toBeLessThan(small * 10);
});

test('what is below an entry is removed with it, and can be inserted elsewhere', () => {
  const known = { inode: 1, isDirectory: false, size: 0, modifiedMs: 0, rights: '' };
  const ledger = new Ledger('/nowhere');
  for (const [inode, name] of ['a', 'a/b', 'a/b/c', 'ab', 'x/y/z'].entries())
    ledger.set(name, { ...known, inode });
  const removed = ledger.remove('a');
  expect(removed.map(([rest]) => rest)).toEqual(['', '/b', '/b/c']);
  expect(ledger.names()).toEqual(['ab', 'x/y/z']);
  ledger.insert('n', removed);
  expect(ledger.names()).toEqual(['ab', 'x/y/z', 'n', 'n/b', 'n/b/c']);
  expect(ledger.nameOf(2)).toBe('n/b/c');
  // A name may be known although its directory is not.
  expect(ledger.remove('x')).toEqual([['/y/z', { ...known, inode: 4 }]]);
  expect(ledger.remove('n/b').map(([rest]) => rest)).toEqual(['', '/c']);
  expect(ledger.remove('n').map(([rest]) => rest)).toEqual(['']);
});
