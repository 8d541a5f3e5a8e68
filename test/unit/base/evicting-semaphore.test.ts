import { EventEmitter } from 'node:events';
import { expect, test } from 'vitest';
import { EnvdError } from '../../../src/base/errors.ts';
import { EvictingSemaphore } from '../../../src/base/evicting-semaphore.ts';
import { Semaphore } from '../../../src/base/semaphore.ts';

const dropped = (waitedMs: number) =>
  new EnvdError('unavailable', `dropped after ${Math.round(waitedMs)} ms`);

test('when all places are taken, another holder gets that of the one that has waited longest', () => {
  const places = new EvictingSemaphore({ most: 2, dropped });
  const [first, second] = [places.take(), places.take()];
  first.waitingSince = null;
  places.take();
  expect([first, second].map(({ signal }) => signal.aborted)).toEqual([false, true]);
  expect(second.signal.reason).toMatchObject({ kind: 'unavailable' });
});

test('who has waited for a short time keeps his place, and a place that was given back is free', () => {
  const places = new EvictingSemaphore({ most: 1, leastMs: 5000, refusal: 'full', dropped });
  {
    using first = places.take();
    expect(() => places.take()).toThrow(
      expect.objectContaining({ kind: 'resource_exhausted', message: 'full' }),
    );
    expect(first.signal.aborted).toBe(false);
  }
  const next = places.take();
  next.waitingSince = (next.waitingSince ?? 0) - 5000;
  places.take();
  expect(next.signal.reason).toMatchObject({ message: expect.stringMatching(/^dropped after \d{4,} ms$/) });
});

test('a semaphore has as many units as it was made with, and gets them back when their holder is closed', () => {
  const semaphore = new Semaphore(3);
  const holder = Object.assign(new EventEmitter(), { destroyed: false });
  expect([semaphore.takeUntilClosed(holder, 2), semaphore.take(2), semaphore.take(1)]).toEqual([
    true,
    false,
    true,
  ]);
  expect([semaphore.taken, semaphore.takeUntilClosed(holder)]).toEqual([3, false]);
  holder.emit('close');
  expect(semaphore.taken).toBe(1);
  holder.destroyed = true;
  expect([semaphore.takeUntilClosed(holder), semaphore.taken]).toEqual([false, 1]);
});
