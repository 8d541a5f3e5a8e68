import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { PausableOutput } from '../../../src/base/pausable-output.ts';

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

function setUp() {
  const written: string[] = [];
  return { written, output: new PausableOutput((lines) => written.push(lines)) };
}

test('the first line is written at once, and the next ones soon after, together', () => {
  const { written, output } = setUp();
  for (const line of ['1\n', '2\n', '3\n']) output.write(line);
  expect(written).toEqual(['1\n']);
  vi.advanceTimersByTime(20);
  output.write('4\n');
  expect(written).toEqual(['1\n', '2\n3\n']);
  output.flush();
  expect(written).toEqual(['1\n', '2\n3\n', '4\n']);
  vi.advanceTimersByTime(50);
  output.write('5\n');
  expect(written.at(-1)).toBe('5\n');
  vi.advanceTimersByTime(50);
  expect(vi.getTimerCount()).toBe(0);
});

test('held lines are written on release', () => {
  const { written, output } = setUp();
  output.write('1\n');
  output.write('2\n');
  output.hold();
  output.write('3\n');
  vi.advanceTimersByTime(50);
  output.flush();
  expect(written).toEqual(['1\n']);
  expect(output.release()).toBe(0);
  expect(output.release()).toBe(0);
  expect(written).toEqual(['1\n', '2\n3\n']);
});

test('lines beyond the limit are dropped and counted', () => {
  const { written, output } = setUp();
  const line = 'x'.repeat(1000);
  output.hold();
  for (let i = 0; i < 1100; i++) output.write(line);
  expect(output.release()).toBe(1100 - 1048);
  expect(written).toEqual([line.repeat(1048)]);
  output.hold();
  expect(output.release()).toBe(0);
});
