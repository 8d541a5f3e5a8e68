import { describe, expect, test, vi } from 'vitest';
import { type AbortListener, AbortRelay, untilAborted, within } from '../../../src/base/abort.ts';

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
