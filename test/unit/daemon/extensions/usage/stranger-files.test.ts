import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { StrangerFiles } from '../../../../../src/daemon/extensions/usage/stranger-files.ts';
import type { Lanes } from '../../../../../src/daemon/linux/lanes/lanes.ts';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test('a file that does not come delays a listing once, for two seconds', async () => {
  const run = vi.fn(() => new Promise<never>(() => {}));
  const files = new StrangerFiles({ run } as unknown as Lanes);
  const answers: (Buffer | null)[] = [];
  const read = (pid: number) => files.read(pid, 'cmdline').then((answer) => answers.push(answer));
  void read(1);
  await vi.advanceTimersByTimeAsync(1999);
  expect(answers).toEqual([]);
  await vi.advanceTimersByTimeAsync(1);
  expect(answers).toEqual([null]);
  void read(2);
  await vi.advanceTimersByTimeAsync(0);
  expect(answers).toEqual([null, null]);
  expect(run).toHaveBeenCalledTimes(1);
});
