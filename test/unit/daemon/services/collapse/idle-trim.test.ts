import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { IdleTrim } from '../../../../../src/daemon/services/collapse/idle-trim.ts';

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
  const state = { isPaused: false, withCode, optimises: true };
  const collapser = {
    onCollapsed: [] as (() => void)[],
    trim: (each: boolean) => void withCode.push(each),
    optimiseAgain: () => {
      state.optimises = true;
    },
  };
  const idleTrim = new IdleTrim(collapser, () => state.isPaused);
  /** Lets that many looks pass, with so much work before each. */
  const pass = (looks: number, ms = 0) => {
    each = ms;
    vi.advanceTimersByTime(looks * LOOK_MS);
    each = 0;
    return withCode.length;
  };
  return { state, collapser, idleTrim, pass };
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

test('not during a freeze; a collapse has done it', () => {
  const { pass, state, collapser } = daemon();
  state.isPaused = true;
  expect(pass(10)).toBe(0);
  for (const listener of collapser.onCollapsed) listener();
  state.isPaused = false;
  expect(pass(10)).toBe(0);
  expect(pass(1, 2000)).toBe(0);
  expect(pass(2)).toBe(1);
});

test('the look after a collapse is not among the first calls of a resume', () => {
  const { collapser } = daemon();
  vi.advanceTimersByTime(LOOK_MS - 1000);
  for (const listener of collapser.onCollapsed) listener();
  const looks = vi.mocked(process.threadCpuUsage).mock.calls.length;
  vi.advanceTimersByTime(LOOK_MS - 1);
  expect(process.threadCpuUsage).toHaveBeenCalledTimes(looks);
  vi.advanceTimersByTime(1);
  expect(process.threadCpuUsage).toHaveBeenCalledTimes(looks + 1);
});

test('code is optimised again when there was work after a collapse', () => {
  const { pass, state, collapser } = daemon();
  pass(1, 2000);
  pass(0);
  for (const listener of collapser.onCollapsed) listener();
  state.optimises = false;
  pass(10, 20);
  expect(state.optimises).toBe(false);
  pass(1, 60);
  expect(state.optimises).toBe(true);
});

test('what is done during a freeze is no reason for it: the calls after a resume come before the thaw', () => {
  const { pass, state, collapser } = daemon();
  state.isPaused = true;
  for (const listener of collapser.onCollapsed) listener();
  state.optimises = false;
  pass(2, 2000);
  state.isPaused = false;
  pass(1, 200);
  expect(state.optimises).toBe(false);
  pass(1, 60);
  expect(state.optimises).toBe(true);
});

test('ends', () => {
  const { pass, idleTrim } = daemon();
  idleTrim[Symbol.dispose]();
  expect(pass(10)).toBe(0);
});
