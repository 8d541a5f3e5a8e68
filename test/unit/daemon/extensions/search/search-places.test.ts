import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { type SearchPlace, SearchPlaces } from '../../../../../src/daemon/extensions/search/search-places.ts';

const NEVER = AbortSignal.any([]);
const [ALICE, BOB] = [1, 2];

let places: SearchPlaces;
beforeEach(() => {
  vi.useFakeTimers();
  places = new SearchPlaces();
});
afterEach(() => void vi.useRealTimers());

/** Enters many times, and collects the places that were given, and the errors. */
function enter(uid: number, times: number) {
  const given: SearchPlace[] = [];
  const refused: string[] = [];
  for (let time = 0; time < times; time += 1)
    places.enter(uid, NEVER).then(
      (place) => given.push(place),
      (error: Error) => refused.push(error.message),
    );
  return { given, refused };
}

const pass = (milliseconds: number) => vi.advanceTimersByTimeAsync(milliseconds);

test('the next place is for the user who has the fewest', async () => {
  const alice = enter(ALICE, 10);
  const bob = enter(BOB, 2);
  await pass(1);
  expect([alice.given.length, bob.given.length]).toEqual([4, 0]);
  alice.given[0]?.leave();
  alice.given[1]?.leave();
  await pass(1);
  expect([alice.given.length, bob.given.length]).toEqual([4, 2]);
});

test('the search that has run longest is ended for another user, but not before 5 s have passed', async () => {
  const alice = enter(ALICE, 4);
  await pass(1000);
  const bob = enter(BOB, 3);
  await pass(3900);
  expect([alice.given.some(({ ended }) => ended.aborted), bob.given.length]).toEqual([false, 0]);
  await pass(200);
  expect(alice.given.map(({ ended }) => ended.aborted)).toEqual([true, true, false, false]);
  expect(bob.given).toHaveLength(2);
  // Both have as many now, so that the third search of Bob ends one of his own.
  await pass(6000);
  expect(alice.given.map(({ ended }) => ended.aborted)).toEqual([true, true, false, false]);
  expect(bob.given.map(({ ended }) => ended.aborted)).toEqual([true, false, false]);
});

test('a search that nobody waits for, or that is kept, is not ended', async () => {
  const alice = enter(ALICE, 4);
  await pass(60_000);
  for (const place of alice.given) place.keep();
  const bob = enter(BOB, 1);
  await pass(60_000);
  expect([alice.given.some(({ ended }) => ended.aborted), bob.given.length]).toEqual([false, 0]);
});

test('of those who wait, the user with the most is refused', async () => {
  const alice = enter(ALICE, 4 + 256);
  const bob = enter(BOB, 3);
  await pass(1);
  expect([alice.refused.length, bob.refused]).toEqual([3, []]);
  expect(alice.refused[0]).toBe('more than 256 searches are waiting: try again later');
});

test('processes that do not end hold no places, and count against their user', async () => {
  const alice = enter(ALICE, 8);
  for (let round = 0; round < 2; round += 1) {
    await pass(1);
    for (const place of alice.given) place.leave();
  }
  expect(alice.given).toHaveLength(8);
  const [refused, bob] = [enter(ALICE, 1), enter(BOB, 1)];
  await pass(1);
  expect([refused.refused.length, bob.given.length]).toEqual([1, 1]);
  alice.given[0]?.left();
  const again = enter(ALICE, 1);
  await pass(1);
  expect(again.given).toHaveLength(1);
});

test('a client that leaves waits no more', async () => {
  enter(ALICE, 4);
  const leaving = new AbortController();
  const waiting = places.enter(BOB, leaving.signal);
  expect(places.isWanted).toBe(true);
  leaving.abort(new Error('gone'));
  await expect(waiting).rejects.toThrow('gone');
  expect(places.isWanted).toBe(false);
});
