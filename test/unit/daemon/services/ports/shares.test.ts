import { expect, test } from 'vitest';
import { ForwardPlaces } from '../../../../../src/daemon/services/ports/forward.ts';
import { fairShares } from '../../../../../src/daemon/services/ports/shares.ts';

const listenersOf = (uid: number, count: number) =>
  Array.from({ length: count }, (_, index) => ({ port: uid * 1000 + index, target: '127.0.0.1', uid }));
const portsOf = (most: number, ...listeners: ReturnType<typeof listenersOf>[]) =>
  fairShares(listeners.flat(), most).map(({ port }) => port);

test('one user has half of the ports, however many are left', () => {
  expect(portsOf(4, listenersOf(1, 9))).toEqual([1000, 1001]);
  expect(portsOf(1, listenersOf(1, 9))).toEqual([1000]);
});

test('two users with many ports leave room for a third with one', () => {
  expect(portsOf(4, listenersOf(1, 9), listenersOf(2, 9), listenersOf(3, 1))).toEqual([
    1000, 2000, 3000, 1001,
  ]);
});

test('what comes first stays when there is no room for more', () => {
  expect(portsOf(2, listenersOf(1, 1), listenersOf(2, 1), listenersOf(3, 1))).toEqual([1000, 2000]);
});

test('users with all the connections that they get leave some to others', () => {
  const places = new ForwardPlaces();
  const takeAll = (uid: number) => {
    let taken = 0;
    while (places.take(uid)) taken++;
    return taken;
  };
  expect([1, 2, 3, 4].map(takeAll)).toEqual([1000, 500, 250, 125]);
  expect([places.open, places.refused]).toEqual([1875, 4]);
  places.giveBack(1);
  expect(places.take(4)).toBe(true);
});
