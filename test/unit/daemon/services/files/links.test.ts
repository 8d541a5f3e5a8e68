import { expect, test } from 'vitest';
import { Links } from '../../../../../src/daemon/services/files/links.ts';

const fileOf = (inode: number, links = 2) => ({ links, device: 1n, inode: BigInt(inode) });

test('all names but the first are links, until there are no more', () => {
  const links = new Links();
  expect(links.earlier(fileOf(1, 1), 'only')).toBeNull();
  expect([1, 2, 3].map((n) => links.earlier(fileOf(7, 3), `${n}`))).toEqual([null, '1', '1']);
  expect(links.earlier(fileOf(7, 3), 'again')).toBeNull();
});

test('the names that are remembered are bounded in bytes', () => {
  const links = new Links();
  const long = 'x'.repeat(4000);
  const names = Array.from({ length: 10_000 }, (_, inode) => links.earlier(fileOf(inode), `${inode}${long}`));
  expect(new Set(names)).toEqual(new Set([null]));
  const known = names.filter((_, inode) => links.earlier(fileOf(inode), 'other') !== null).length;
  expect(known).toBeGreaterThan(4000);
  expect(known * long.length).toBeLessThan(17 * 1024 * 1024);
  // There is room again.
  expect([links.earlier(fileOf(-1), 'a'), links.earlier(fileOf(-1), 'b')]).toEqual([null, 'a']);
});
