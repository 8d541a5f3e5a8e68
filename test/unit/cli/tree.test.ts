import { expect, test } from 'vitest';
import { orderAsTree } from '../../../src/cli/output/tree.ts';

const placesOf = (processes: readonly (readonly [pid: number, parent?: number])[]) =>
  orderAsTree(processes.map(([pid, parent]) => ({ pid, parent }))).map(({ process, depth }) => [
    process.pid,
    depth,
  ]);

test('each process comes behind its parent', () => {
  const processes = [[9, 5], [5, 1], [1, 0], [7, 1], [6], [8, 5]] as const;
  expect(placesOf(processes)).toEqual([
    [1, 0],
    [5, 1],
    [8, 2],
    [9, 2],
    [7, 1],
    [6, 0],
  ]);
});

test('processes of a circle are shown, and each pid once', () => {
  const processes = [
    [1, 2],
    [2, 1],
    [3, 3],
    [4, 2],
    [4, 2],
  ] as const;
  expect(placesOf(processes)).toEqual([
    [1, 0],
    [2, 1],
    [4, 2],
    [3, 0],
  ]);
});

test('a chain of 100,000 processes is no recursion', () => {
  const chain = Array.from({ length: 100_000 }, (_, index) => [index + 1, index] as const);
  expect(placesOf(chain).at(-1)).toEqual([100_000, 99_999]);
});
