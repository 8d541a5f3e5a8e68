import fc from 'fast-check';
import { expect, test } from 'vitest';
import { selectRanges } from '../../../../../../src/daemon/http/rest/files/ranges.ts';

const select = (header: string | undefined, size = 10) => selectRanges(header, size);

test.each([
  ['bytes=0-0', [[0, 1]]],
  ['bytes=2-', [[2, 10]]],
  ['bytes=-3', [[7, 10]]],
  ['bytes=-30', [[0, 10]]],
  ['bytes=0-99', [[0, 10]]],
  ['Bytes=0-1', [[0, 2]]],
  [
    'bytes=0-1, 4-5',
    [
      [0, 2],
      [4, 6],
    ],
  ],
  [
    'bytes=4-5,0-1',
    [
      [4, 6],
      [0, 2],
    ],
  ],
  ['bytes=0-1,50-60', [[0, 2]]],
  ['bytes=0-1,-20', [[0, 10]]],
  ['bytes=0-7,5-9', [[0, 10]]],
  [
    'bytes=0-3,2-5',
    [
      [0, 4],
      [2, 6],
    ],
  ],
])('%s selects %j', (header, expected) => {
  expect(select(header)?.map(({ start, end }) => [start, end])).toEqual(expected);
});

test.each(['bytes=10-', 'bytes=50-60', 'bytes=-0', 'bytes=5-2'])('%s: outside of the file', (header) => {
  expect(select(header)).toEqual([]);
});

test.each([undefined, '', 'bytes', 'bytes=', 'bytes=a-b', 'lines=0-1', 'lines=50-', 'bytes=1'])(
  '%s is ignored',
  (header) => {
    expect(select(header)).toBeNull();
  },
);

test('an empty file has no ranges', () => {
  expect(select('bytes=0-', 0)).toEqual([]);
  expect(select('bytes=-5', 0)).toEqual([]);
});

test('any header yields ranges within the file that together are no larger than it', () => {
  const number = fc.oneof(fc.constant(''), fc.nat(120).map(String));
  const range = fc.tuple(number, number).map((pair) => pair.join('-'));
  fc.assert(
    fc.property(fc.array(range, { maxLength: 8 }), fc.nat(100), (ranges, size) => {
      const selected = select(`bytes=${ranges.join(',')}`, size) ?? [];
      for (const { start, end } of selected) {
        expect(start).toBeGreaterThanOrEqual(0);
        expect(end).toBeGreaterThan(start);
        expect(end).toBeLessThanOrEqual(size);
      }
      expect(selected.reduce((sum, { start, end }) => sum + end - start, 0)).toBeLessThanOrEqual(size);
    }),
    { numRuns: 1000 },
  );
});
