import { beforeEach, expect, onTestFinished, test, vi } from 'vitest';
import { Watchdog } from '../../../../../src/daemon/services/pause/recovery.ts';

beforeEach(() => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
});

test('it expires once, as long after the last time that it was armed', () => {
  const expire = vi.fn();
  const watchdog = new Watchdog(1000, expire);
  watchdog.arm();
  vi.advanceTimersByTime(600);
  watchdog.arm();
  vi.advanceTimersByTime(600);
  expect(expire).not.toHaveBeenCalled();
  vi.advanceTimersByTime(10_000);
  expect(expire).toHaveBeenCalledTimes(1);
});

test('disarmed it does not', () => {
  const expire = vi.fn();
  const watchdog = new Watchdog(1000, expire);
  watchdog.arm();
  watchdog.disarm();
  vi.advanceTimersByTime(10_000);
  expect(expire).not.toHaveBeenCalled();
});
