import { expect, test } from 'vitest';
import { Lanes } from '../../../src/gateway/expiry/lanes.ts';

const waiting = (id: string, host = id, failures = 0) => ({ id, host, failures });

test('a sandbox has one place, a host and all of them as many as they may, and one that has gone leaves its own', () => {
  const lanes = new Lanes({ maxExpiries: 3, maxExpiriesPerHost: 2 });
  expect(lanes.take(waiting('a', 'h'))).toBe(true);
  expect(lanes.take(waiting('a', 'other'))).toBe(false);
  expect(lanes.take(waiting('b', 'h'))).toBe(true);
  expect(lanes.take(waiting('c', 'h'))).toBe(false);
  expect(lanes.isFull).toBe(false);
  expect(lanes.take(waiting('c', 'g'))).toBe(true);
  expect(lanes.isFull).toBe(true);
  expect(lanes.take(waiting('d', 'f'))).toBe(false);
  lanes.release('b');
  expect(lanes.take(waiting('d', 'h'))).toBe(true);
});

test('those whose last expiry has failed have a quarter of the places', () => {
  const lanes = new Lanes({ maxExpiries: 8, maxExpiriesPerHost: 8 });
  const taken = ['a', 'b', 'c'].map((id) => lanes.take(waiting(id, id, 1)));
  expect(taken).toEqual([true, true, false]);
  expect(lanes.take(waiting('d'))).toBe(true);
});
