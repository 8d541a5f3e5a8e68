import { expect, test } from 'vitest';
import { KeyedLock } from '../../../../../src/daemon/services/files/keyed-lock.ts';

test('one after the other with the same key, in order, also after a failure', async () => {
  const lock = new KeyedLock();
  const log: string[] = [];
  const run = (name: string, fails = false) =>
    lock.run('key', async () => {
      log.push(`${name} begins`);
      await new Promise((resolve) => setImmediate(resolve));
      log.push(`${name} ends`);
      if (fails) throw new Error(name);
      return name;
    });
  const results = await Promise.allSettled([run('a'), run('b', true), run('c')]);
  expect(results.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
  expect(log).toEqual(['a begins', 'a ends', 'b begins', 'b ends', 'c begins', 'c ends']);
});

test('side by side with different keys', async () => {
  const lock = new KeyedLock();
  const { promise, resolve } = Promise.withResolvers<void>();
  const first = lock.run('a', () => promise.then(() => 'first'));
  await lock.run('b', async () => resolve());
  expect(await first).toBe('first');
});
