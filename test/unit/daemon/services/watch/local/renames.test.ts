import { expect, test } from 'vitest';
import { bytePath } from '../../../../../../src/daemon/linux/paths/byte-path.ts';
import type { Directory } from '../../../../../../src/daemon/services/watch/local/directory.ts';
import { type Rename, Renames } from '../../../../../../src/daemon/services/watch/local/renames.ts';

/** A rename from this name; only its identity counts here. */
const renameOf = (name: string): Rename => {
  const path = bytePath(name);
  return { directory: {} as Directory, name: path, path, isFollowed: true };
};

test('the first half of a rename is taken once, by its cookie', () => {
  const renames = new Renames();
  const [one, two] = [renameOf('one'), renameOf('two')];
  renames.add(1, one);
  renames.add(2, two);
  expect(renames.take(2)).toBe(two);
  expect(renames.take(2)).toBeNull();
  expect(renames.take(1)).toBe(one);
});

test('of halves that are never completed the last sixteen are kept', () => {
  const renames = new Renames();
  const all = Array.from({ length: 20 }, (_, cookie) => renameOf(`${cookie}`));
  for (const [cookie, rename] of all.entries()) renames.add(cookie, rename);
  const kept = all.map((_, cookie) => renames.take(cookie) !== null);
  expect(kept).toEqual(all.map((_, cookie) => cookie >= 4));
});
