import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { MetricsHistory, type Point } from '../../../../../src/daemon/extensions/usage/metrics-history.ts';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const ZERO = { cpu_used_pct: 0, mem_used: 0, disk_used: 0, tasks: 0 };
const POINT: Omit<Point, 'ts'> = { ...ZERO, cpu_pressure: 1.5, memory_pressure: Number.NaN, io_pressure: 0 };
const pass = (intervals: number) => vi.advanceTimersByTimeAsync(intervals * 10_000);

test('it keeps the last hour, the oldest point first', async () => {
  let ts = 0;
  const history = new MetricsHistory(
    async () => ({ ...POINT, ts: ts++ }),
    () => false,
  );
  expect(history.points).toEqual([]);
  await pass(2);
  expect(history.points).toEqual([0, 1].map((at) => ({ ...POINT, ts: at })));
  await pass(360);
  expect(history.points.map((point) => point.ts)).toEqual(Array.from({ length: 360 }, (_, at) => at + 2));
});

test('nothing is read while the workload is frozen, and a reading that fails leaves a gap', async () => {
  let ts = 0;
  let frozen = false;
  let fails = false;
  const read = vi.fn(async () => {
    ts++;
    if (fails) throw new Error('EMFILE');
    return { ...POINT, ts };
  });
  const history = new MetricsHistory(read, () => frozen);
  await pass(1);
  frozen = true;
  await pass(3);
  expect(read).toHaveBeenCalledTimes(1);
  frozen = false;
  fails = true;
  await pass(1);
  fails = false;
  await pass(1);
  expect(history.points.map((point) => point.ts)).toEqual([1, 3]);
});
