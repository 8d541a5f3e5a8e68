import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { monotonicMs } from '../../../../../../src/base/monotonic.ts';
import type { EndedProcess } from '../../../../../../src/daemon/services/process/lifecycle/ended.ts';
import { ProcessIndex } from '../../../../../../src/daemon/services/process/lifecycle/process-index.ts';

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
});
afterEach(() => {
  vi.useRealTimers();
});

/** A process that has ended so many milliseconds ago. */
function endedProcess(pid: number, ago: number) {
  const process = { pid, tag: null, startId: `${pid}`, endedAt: monotonicMs() - ago, forget: vi.fn() };
  return process as typeof process & EndedProcess;
}

test('each ended process is forgotten 30 s after its end, also when another one has its pid', () => {
  const known = new ProcessIndex();
  const [old, same, young] = [endedProcess(7, 20_000), endedProcess(7, 10_000), endedProcess(8, 0)];
  for (const process of [old, same, young]) known.retire(process);
  const isForgotten = () => [old, same, young].map(({ forget }) => forget.mock.calls.length);
  vi.advanceTimersByTime(9_000);
  expect(isForgotten()).toEqual([0, 0, 0]);
  vi.advanceTimersByTime(2_000);
  expect(isForgotten()).toEqual([1, 0, 0]);
  expect(known.findRetained({ pid: 7 })).toBe(same);
  vi.runAllTimers();
  expect(isForgotten()).toEqual([1, 1, 1]);
  expect(known.all).toEqual([]);
  expect(known.startedWith('8')).toBeUndefined();
  expect(vi.getTimerCount()).toBe(0);
});

test('those that end within a moment have one timer together', () => {
  const known = new ProcessIndex();
  for (let pid = 1; pid <= 100; pid++) known.retire(endedProcess(pid, 0));
  expect(vi.getTimerCount()).toBe(1);
  vi.runOnlyPendingTimers();
  expect(known.all).toEqual([]);
});
