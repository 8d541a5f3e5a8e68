import { expect, test } from 'vitest';
import { type Kept, Quota } from '../../../src/base/quota.ts';

const LIMIT = 100;

/** What a reader keeps; `drop` frees all of it. */
class Told implements Kept {
  readonly reasons: string[] = [];
  readonly #unread: Quota;

  constructor(unread: Quota) {
    this.#unread = unread;
  }

  drop({ kind, message }: { kind: string; message: string }): void {
    this.reasons.push(`${kind}: ${message}`);
    this.#unread.set(this, 0);
  }
}

function setUp() {
  const unread = new Quota(LIMIT);
  return { unread, first: new Told(unread), second: new Told(unread), third: new Told(unread) };
}

const REASON = `resource_exhausted: reader dropped: more than ${LIMIT} bytes (--unread-bytes) wait for slow readers: read faster, or connect again`;

test('beyond the limit, what has waited longest is dropped, and no more than that', () => {
  const { unread, first, second, third } = setUp();
  unread.set(first, 40);
  unread.set(second, 40);
  unread.set(third, 20);
  expect(first.reasons).toEqual([]);
  unread.set(third, 30);
  expect([first, second, third].map(({ reasons }) => reasons)).toEqual([[REASON], [], []]);
  expect(unread.sum).toBe(70);
});

test('a reader that has taken something has waited least', () => {
  const { unread, first, second, third } = setUp();
  unread.set(first, 40);
  unread.set(second, 40);
  unread.set(first, 30, true);
  unread.set(third, 60);
  expect([first, second, third].map(({ reasons }) => reasons.length)).toEqual([0, 1, 0]);
});

test('what is freed no longer counts', () => {
  const { unread, first, second } = setUp();
  unread.set(first, 90);
  unread.set(first, 0);
  unread.set(second, 100);
  expect([...first.reasons, ...second.reasons]).toEqual([]);
});

test('it is scarce from half of the limit on', () => {
  const { unread, first } = setUp();
  unread.set(first, 50);
  expect(unread.isScarce).toBe(false);
  unread.set(first, 51);
  expect(unread.isScarce).toBe(true);
});

test('what has moved meanwhile is not the slowest; when all have, the first of them is dropped', () => {
  const { unread, first, second, third } = setUp();
  const moving = new Set<Kept>([first]);
  for (const kept of [first, second]) Object.assign(kept, { hasMoved: () => moving.delete(kept) });
  unread.set(first, 40);
  unread.set(second, 40);
  unread.set(third, 30);
  expect(second.reasons).toEqual([REASON]);
  moving.add(first);
  unread.set(third, 0);
  unread.set(first, 110);
  expect(first.reasons).toEqual([REASON]);
  expect(unread.dropped).toBe(2);
});
