import { describe, expect, test, vi } from 'vitest';
import { type AbortListener, AbortRelay, limited, untilAborted, within } from '../../../src/base/abort.ts';

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

describe('limited', () => {
  test('settles as the work does, and leaves neither timer nor listener', async () => {
    vi.useFakeTimers();
    try {
      const { signal } = new AbortController();
      const removed = vi.spyOn(signal, 'removeEventListener');
      expect(await limited(1000, signal, async () => 1)).toBe(1);
      await expect(limited(1000, signal, () => Promise.reject(new Error('failed')))).rejects.toThrow(
        'failed',
      );
      expect([vi.getTimerCount(), removed.mock.calls.length]).toEqual([0, 2]);
    } finally {
      vi.useRealTimers();
    }
  });

  test('aborts after its time with a TimeoutError, and with the reason of the signal', async () => {
    vi.useFakeTimers();
    try {
      const controller = new AbortController();
      const fails = (milliseconds: number) =>
        expect(limited(milliseconds, controller.signal, (signal) => untilAborted(NEVER, signal))).rejects;
      const late = fails(1000).toMatchObject({ name: 'TimeoutError', message: 'no answer within 1000 ms' });
      const gone = fails(2000).toThrow('gone');
      vi.advanceTimersByTime(1000);
      await late;
      controller.abort(new Error('gone'));
      await gone;
      await fails(1000).toThrow('gone');
    } finally {
      vi.useRealTimers();
    }
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

describe('AbortRelay', () => {
  test('aborts those who are there, whoever has gone before them', () => {
    const controller = new AbortController();
    const relay = new AbortRelay(controller.signal);
    const aborted: string[] = [];
    const [a, b, c, d] = ['a', 'b', 'c', 'd'].map((name): AbortListener => {
      return { index: -1, abort: () => void aborted.push(name) };
    }) as [AbortListener, AbortListener, AbortListener, AbortListener];
    for (const each of [a, b, c, d]) relay.add(each);
    for (const each of [a, d, d]) relay.remove(each);
    controller.abort(new Error('over'));
    expect(aborted.toSorted()).toEqual(['b', 'c']);
  });

  test('aborts at once when the signal has', () => {
    const relay = new AbortRelay(AbortSignal.abort('over'));
    const abort = vi.fn();
    relay.add({ index: -1, abort });
    expect(abort).toHaveBeenCalledWith('over');
  });
});
