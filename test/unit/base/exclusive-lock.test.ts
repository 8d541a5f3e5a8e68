import { expect, test } from 'vitest';
import { ExclusiveLock } from '../../../src/base/exclusive-lock.ts';

test('one operation at a time; the refusal names the other one', () => {
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
  lock.acquire('freeze');
});
