import { expect, test } from 'vitest';
import { ExpiryLanes } from '../../../src/gateway/expiry/lanes.ts';

const waiting = (id: string, host = id, failures = 0, owner: string | null = null) => ({
  id,
  host,
  owner,
  failures,
});

test('a sandbox has one place, a host and all of them as many as they may, and one that has gone leaves its own', () => {
  const lanes = new ExpiryLanes({ maxExpiries: 3, maxExpiriesPerHost: 2 });
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
  const lanes = new ExpiryLanes({ maxExpiries: 8, maxExpiriesPerHost: 8 });
  const taken = ['a', 'b', 'c'].map((id) => lanes.take(waiting(id, id, 1)));
  expect(taken).toEqual([true, true, false]);
  expect(lanes.take(waiting('d'))).toBe(true);
});

test('an owner leaves as many places as are its own, of all, of a host and of those for failures', () => {
  const lanes = new ExpiryLanes({ maxExpiries: 16, maxExpiriesPerHost: 4 });
  const take = (owner: string, host: string, failures: number, count: number) =>
    Array.from({ length: count }, (_, index) =>
      lanes.take(waiting(`${owner} ${host} ${failures} ${index}`, host, failures, owner)),
    ).filter(Boolean).length;
  expect(take('eve', 'h', 0, 5)).toBe(2);
  expect(take('ada', 'h', 0, 5)).toBe(1);
  expect(take('bob', 'h', 0, 5)).toBe(1);
  // Those that have failed: a quarter of a host's places, and of all.
  expect(take('eve', 'g', 1, 5)).toBe(1);
  expect(take('ada', 'g', 1, 5)).toBe(0);
  expect(['g2', 'g3'].map((host) => take('eve', host, 1, 1))).toEqual([1, 0]);
  expect(take('ada', 'g3', 1, 1)).toBe(1);
  expect(['h1', 'h2', 'h3', 'h4'].map((host) => take('eve', host, 0, 1))).toEqual([1, 1, 1, 0]);
  expect(take('new', 'h5', 0, 1)).toBe(1);
});
