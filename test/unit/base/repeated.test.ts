import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Repeated } from '../../../src/base/repeated.ts';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** Work that the test ends, with the wait before the next run. */
function setUp(firstMs: number | null) {
  const runs: PromiseWithResolvers<number>[] = [];
  const repeated = new Repeated(firstMs, () => {
    const run = Promise.withResolvers<number>();
    runs.push(run);
    return run.promise;
  });
  const pass = async (ms: number) => {
    await vi.advanceTimersByTimeAsync(ms);
    return runs.length;
  };
  return { repeated, runs, pass };
}

test('waits as long as the run before has said', async () => {
  const { runs, pass } = setUp(100);
  expect([await pass(99), await pass(1)]).toEqual([0, 1]);
  // One at a time.
  expect(await pass(1000)).toBe(1);
  runs[0]?.resolve(50);
  expect([await pass(49), await pass(1)]).toEqual([1, 2]);
});

test('begins at once when it is to', async () => {
  const { runs, pass } = setUp(null);
  expect(runs.length).toBe(1);
  runs[0]?.resolve(10);
  expect(await pass(10)).toBe(2);
});

test('a postponed wait begins anew; a run is not doubled', async () => {
  const { repeated, runs, pass } = setUp(100);
  await pass(90);
  repeated.postpone();
  expect([await pass(99), await pass(1)]).toEqual([0, 1]);
  repeated.postpone();
  expect(await pass(1000)).toBe(1);
  runs[0]?.resolve(100);
  await pass(0);
  repeated.postpone();
  expect([await pass(99), await pass(1)]).toEqual([1, 2]);
});

test('ends during a wait, and during a run', async () => {
  const waiting = setUp(100);
  waiting.repeated[Symbol.dispose]();
  waiting.repeated.postpone();
  expect(await waiting.pass(1000)).toBe(0);
  const working = setUp(null);
  working.repeated[Symbol.dispose]();
  working.runs[0]?.resolve(1);
  expect(await working.pass(1000)).toBe(1);
  expect(working.repeated.isOver).toBe(true);
  expect(vi.getTimerCount()).toBe(0);
});
