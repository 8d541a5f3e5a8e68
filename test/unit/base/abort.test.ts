import { describe, expect, test, vi } from 'vitest';
import { untilAborted, within } from '../../../src/base/abort.ts';

const NEVER = new Promise<never>(() => {});

describe('untilAborted', () => {
  test('settles as the work does', async () => {
    const { signal } = new AbortController();
    expect(await untilAborted(Promise.resolve(1), signal)).toBe(1);
    await expect(untilAborted(Promise.reject(new Error('failed')), signal)).rejects.toThrow('failed');
  });

  test('rejects with the abort reason, also when the signal was aborted before', async () => {
    const controller = new AbortController();
    const waiting = untilAborted(NEVER, controller.signal);
    controller.abort(new Error('gone'));
    await expect(waiting).rejects.toThrow('gone');
    await expect(untilAborted(NEVER, controller.signal)).rejects.toThrow('gone');
  });
});

describe('within', () => {
  test('settles as the work does, and clears the timer', async () => {
    vi.useFakeTimers();
    try {
      expect(await within(1000, Promise.resolve(1), () => 2)).toBe(1);
      await expect(within(1000, Promise.reject(new Error('failed')), () => 2)).rejects.toThrow('failed');
      expect(vi.getTimerCount()).toBe(0);
    } finally {
      vi.useRealTimers();
    }
  });

  test('settles as `late` does when the time is up', async () => {
    expect(await within(1, NEVER, () => 2)).toBe(2);
    expect(await within(1, NEVER, async () => 3)).toBe(3);
    const late = () => {
      throw new Error('late');
    };
    await expect(within(1, NEVER, late)).rejects.toThrow('late');
  });
});
