import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { IdleTrim } from '../../../../../src/daemon/services/pause/idle-trim.ts';

const LOOK_MS = 5000;

beforeEach(() => void vi.useFakeTimers());
afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

/** A daemon whose main thread is told how much it works. */
function daemon() {
  let worked = 0;
  let each = 0;
  vi.spyOn(process, 'threadCpuUsage').mockImplementation(() => {
    worked += each;
    return { user: worked * 600, system: worked * 400 };
  });
  const withCode: boolean[] = [];
  const state = { isPaused: false, withCode };
  const collapser = { trim: (each: boolean) => void withCode.push(each) };
  const idleTrim = new IdleTrim(collapser, () => state.isPaused);
  /** Lets that many looks pass, with so much work before each. */
  const pass = (looks: number, ms = 0) => {
    each = ms;
    vi.advanceTimersByTime(looks * LOOK_MS);
    each = 0;
    return withCode.length;
  };
  return { state, idleTrim, pass };
}

test('trims after the start, and then only when there was work, without its code', () => {
  const { pass, state } = daemon();
  expect(pass(1)).toBe(0);
  expect(pass(1)).toBe(1);
  expect(pass(100, 5)).toBe(1);
  expect(pass(120, 5)).toBe(2);
  expect(state.withCode).toEqual([true, false]);
});

test('not while it is busy, and not at the first idle look after it', () => {
  const { pass } = daemon();
  expect(pass(50, 1000)).toBe(0);
  expect(pass(1)).toBe(0);
  expect(pass(1)).toBe(1);
  expect(pass(20)).toBe(1);
});

test('not during a freeze, whose work is not counted', () => {
  const { pass, state } = daemon();
  state.isPaused = true;
  expect(pass(10, 2000)).toBe(0);
  state.isPaused = false;
  expect(pass(2)).toBe(1);
  state.isPaused = true;
  expect(pass(10, 2000)).toBe(1);
  state.isPaused = false;
  expect(pass(10)).toBe(1);
  expect(pass(1, 2000)).toBe(1);
  expect(pass(2)).toBe(2);
});

test('ends', () => {
  const { pass, idleTrim } = daemon();
  idleTrim[Symbol.dispose]();
  expect(pass(10)).toBe(0);
});
