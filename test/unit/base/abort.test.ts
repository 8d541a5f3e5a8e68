import { describe, expect, test, vi } from 'vitest';
import { untilAborted, within } from '../../../src/base/abort.ts';

const NEVER = new Promise<never>(() => {});

describe('untilAborted', () => {
  test('is what the work settles with', async () => {
    const { signal } = new AbortController();
    expect(await untilAborted(Promise.resolve(1), signal)).toBe(1);
    await expect(untilAborted(Promise.reject(new Error('failed')), signal)).rejects.toThrow('failed');
  });

  test('throws the reason of a signal that aborts, or has aborted', async () => {
    const controller = new AbortController();
    const waiting = untilAborted(NEVER, controller.signal);
    controller.abort(new Error('gone'));
    await expect(waiting).rejects.toThrow('gone');
    await expect(untilAborted(NEVER, controller.signal)).rejects.toThrow('gone');
  });
});

describe('within', () => {
  test('is what the work settles with, and leaves no timer', async () => {
    vi.useFakeTimers();
    try {
      expect(await within(1000, Promise.resolve(1), () => 2)).toBe(1);
      await expect(within(1000, Promise.reject(new Error('failed')), () => 2)).rejects.toThrow('failed');
      expect(vi.getTimerCount()).toBe(0);
    } finally {
      vi.useRealTimers();
    }
  });

  test('is what `late` returns, or throws, when that takes too long', async () => {
    expect(await within(1, NEVER, () => 2)).toBe(2);
    expect(await within(1, NEVER, async () => 3)).toBe(3);
    const late = () => {
      throw new Error('late');
    };
    await expect(within(1, NEVER, late)).rejects.toThrow('late');
  });
});
