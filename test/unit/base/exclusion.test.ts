import { setImmediate as turn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { ExclusiveLock, KeyedQueue } from '../../../src/base/exclusion.ts';

test('the lock allows one operation at a time and names the other one in the refusal', () => {
  const lock = new ExclusiveLock();
  {
    using _ = lock.acquire('freeze');
    expect(() => lock.acquire('freeze')).toThrow('cannot freeze now: another freeze is under way');
    expect(() => lock.acquire('collapse')).toThrow(
      expect.objectContaining({
        kind: 'unavailable',
        message: 'cannot collapse now: a freeze is under way',
      }),
    );
  }
  lock.acquire('collapse')[Symbol.dispose]();
  lock.acquire('upgrade');
  expect(() => lock.acquire('freeze')).toThrow('cannot freeze now: an upgrade is under way');
});

test('a queue runs calls one at a time, in order, also after a failed one', async () => {
  const queue = new KeyedQueue('work');
  const log: string[] = [];
  const work = (name: string, error?: Error) => async () => {
    log.push(`${name} begins`);
    await turn();
    log.push(`${name} ends`);
    if (error) throw error;
    return name;
  };
  const results = await Promise.allSettled([
    queue.run('', work('a')),
    queue.run('', work('b', new Error('of b'))),
    queue.run('', work('c')),
  ]);
  expect(results.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
  expect(log).toEqual(['a begins', 'a ends', 'b begins', 'b ends', 'c begins', 'c ends']);
  expect(queue.isIdle).toBe(true);
});

test('a call that is queued later does not run earlier', async () => {
  const queue = new KeyedQueue('work');
  const order: string[] = [];
  const first = queue.run('', async () => {});
  const second = queue.run('', async () => void order.push('second'));
  // When the first one has ended, and before the second one starts.
  const third = first.then(() => queue.run('', async () => void order.push('third')));
  await Promise.all([second, third]);
  expect(order).toEqual(['second', 'third']);
});

test('a queue refuses a call beyond its limit without running it', async () => {
  const queue = new KeyedQueue('init', 2);
  const gate = Promise.withResolvers<void>();
  const ran: number[] = [];
  const calls = [0, 1, 2, 3].map((index) =>
    queue.run('', async () => {
      await gate.promise;
      ran.push(index);
    }),
  );
  await expect(calls[3]).rejects.toThrow('cannot init now: 2 others are waiting: try again later');
  gate.resolve();
  await Promise.all(calls.slice(0, 3));
  expect(ran).toEqual([0, 1, 2]);
  await queue.run('', async () => void ran.push(4));
  expect(ran).toEqual([0, 1, 2, 4]);
});

test('calls with the same key run in turn, with different keys concurrently', async () => {
  const queues = new KeyedQueue('work', 1);
  const gate = Promise.withResolvers<string>();
  const first = queues.run('a', () => gate.promise);
  const second = queues.run('a', async () => 'second');
  await expect(queues.run('a', async () => 'third')).rejects.toThrow('1 others are waiting');
  await queues.run('b', async () => gate.resolve('first'));
  expect(await Promise.all([first, second])).toEqual(['first', 'second']);
  expect(await queues.run('a', async () => 'fourth')).toBe('fourth');
});
