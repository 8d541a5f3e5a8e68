import type { Logger } from 'pino';
import { expect, test } from 'vitest';
import { ExclusiveLock } from '../../../../../src/base/exclusion.ts';
import { Upgrade } from '../../../../../src/daemon/services/handover/upgrade.ts';

test('what is excluded stays excluded until a replacement has failed, and its reason is told', async () => {
  const replacement = Promise.withResolvers<never>();
  const told = Promise.withResolvers<string>();
  const lock = new ExclusiveLock();
  const upgrade = new Upgrade(
    { command: ['/bin/true'], version: '1', trialMs: 20_000 },
    lock,
    { assertPossible: () => {}, replace: () => replacement.promise },
    { error: ({ reason }: { reason: string }) => told.resolve(reason) } as Pick<Logger, 'error'>,
  );
  await upgrade.start();
  expect(lock.isHeld).toBe(true);
  replacement.reject(new Error('the kernel has refused it'));
  expect(await told.promise).toBe('the kernel has refused it');
  await expect.poll(() => lock.isHeld).toBe(false);
});
