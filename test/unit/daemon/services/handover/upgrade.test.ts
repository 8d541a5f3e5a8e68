import { expect, test } from 'vitest';
import { Upgrade } from '../../../../../src/daemon/services/handover/upgrade.ts';

test('what is excluded stays excluded until a replacement has failed, and its reason is told', async () => {
  const replacement = Promise.withResolvers<never>();
  const told = Promise.withResolvers<string>();
  let isHeld = false;
  const upgrade = new Upgrade({
    ...{ command: ['/bin/true'], version: '1', trialMs: 20_000, assertPossible: () => {} },
    lock: () => {
      isHeld = true;
      return {
        [Symbol.dispose]() {
          isHeld = false;
        },
      };
    },
    replace: () => replacement.promise,
    onFailure: told.resolve,
  });
  await upgrade.start();
  expect(isHeld).toBe(true);
  replacement.reject(new Error('the kernel has refused it'));
  expect(await told.promise).toBe('the kernel has refused it');
  await expect.poll(() => isHeld).toBe(false);
});
