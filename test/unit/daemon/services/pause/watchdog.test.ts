import { beforeEach, expect, onTestFinished, test, vi } from 'vitest';
import { Watchdog } from '../../../../../src/daemon/services/pause/recovery.ts';

/** contract.md, section 7: a freeze that nobody thaws is undone after 10 min. */
const WATCHDOG_MS = 10 * 60 * 1000;

beforeEach(() => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
});

test('it thaws once, as long after the last time that it was armed', async () => {
  const [thaw, onThaw] = [vi.fn(), vi.fn()];
  const watchdog = new Watchdog(thaw, onThaw);
  watchdog.arm();
  await vi.advanceTimersByTimeAsync(0.6 * WATCHDOG_MS);
  watchdog.arm();
  await vi.advanceTimersByTimeAsync(0.6 * WATCHDOG_MS);
  expect(thaw).not.toHaveBeenCalled();
  await vi.advanceTimersByTimeAsync(10 * WATCHDOG_MS);
  expect(thaw).toHaveBeenCalledTimes(1);
  expect(onThaw).toHaveBeenCalledExactlyOnceWith(null);
  expect(watchdog.thaws).toBe(1);
});

test('disarmed it does not', async () => {
  const thaw = vi.fn();
  const watchdog = new Watchdog(thaw, () => {});
  watchdog.arm();
  watchdog.disarm();
  await vi.advanceTimersByTimeAsync(10 * WATCHDOG_MS);
  expect(thaw).not.toHaveBeenCalled();
});

test('it tells of a thaw that has failed, and tries again', async () => {
  const error = new Error('EIO');
  const thaw = vi.fn(async () => {}).mockRejectedValueOnce(error);
  const onThaw = vi.fn();
  const watchdog = new Watchdog(thaw, onThaw);
  watchdog.arm();
  await vi.advanceTimersByTimeAsync(WATCHDOG_MS);
  await vi.advanceTimersByTimeAsync(WATCHDOG_MS);
  expect(onThaw.mock.calls).toEqual([[error], [null]]);
  expect(watchdog.thaws).toBe(1);
});
