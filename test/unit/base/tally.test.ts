import { expect, test } from 'vitest';
import { Durations } from '../../../src/base/tally.ts';

test('Durations counts and sums successful work only', async () => {
  const durations = new Durations();
  // The subject of the test.
  const wait = () => new Promise<string>((resolve) => setTimeout(resolve, 20, 'done'));
  expect(await durations.measure(wait)).toBe('done');
  await durations.measure(wait);
  expect(durations.count).toBe(2);
  expect(durations.lastSeconds).toBeGreaterThan(0.015);
  expect(durations.seconds).toBeGreaterThan(0.035);
  const before = { ...durations };
  await expect(durations.measure(() => Promise.reject(new Error('failed')))).rejects.toThrow('failed');
  expect({ ...durations }).toEqual(before);
});
