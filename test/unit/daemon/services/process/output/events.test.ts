import { describe, expect, test } from 'vitest';
import { endEvent } from '../../../../../../src/daemon/services/process/output/events.ts';

const used = { userMicros: 1, systemMicros: 2 };
const exit = (code: number) => ({ code, signal: null, ...used });
const death = (signal: number) => ({ code: null, signal, ...used });
const tree = (outOfMemory: boolean | null) => ({
  peakMemoryBytes: 4096,
  outOfMemory,
  cpu: null,
  refusedTasks: null,
});

describe('the status of the end event has the words of Go', () => {
  test.each([
    [exit(0), { exitCode: 0, exited: true, status: 'exit status 0', error: null, signal: null }],
    [exit(3), { exitCode: 3, exited: true, status: 'exit status 3', error: 'exit status 3', signal: null }],
    [exit(255), { exitCode: 255, exited: true, status: 'exit status 255', error: 'exit status 255' }],
    [
      death(9),
      { exitCode: -1, exited: false, status: 'signal: killed', error: 'signal: killed', signal: 'SIGKILL' },
    ],
    [death(11), { status: 'signal: segmentation fault', signal: 'SIGSEGV' }],
    [death(37), { status: 'signal: signal 37', signal: 'SIGRTMIN+3' }],
  ])('%o', (outcome, wanted) => {
    expect(endEvent(outcome, false, null)).toMatchObject(wanted);
  });
});

describe('the reason of the end event', () => {
  test.each([
    ['exited', exit(1), false, tree(false)],
    ['signaled', death(9), false, tree(false)],
    ['signaled', death(9), false, null],
    ['signaled', death(9), false, tree(null)],
    ['out of memory', death(9), false, tree(true)],
    // The kernel killed a child of the process, which itself exited.
    ['exited', exit(0), false, tree(true)],
    ['signaled', death(15), false, tree(true)],
    ['deadline', death(9), true, tree(false)],
    ['deadline', exit(0), true, null],
  ] as const)('is %s: %o, deadline %s, %o', (reason, outcome, expired, usage) => {
    expect(endEvent(outcome, expired, usage).reason).toBe(reason);
  });
});

test('the usage of the end event', () => {
  expect(endEvent(exit(0), false, tree(null)).usage).toEqual({
    userMicros: 1,
    systemMicros: 2,
    peakMemoryBytes: 4096,
  });
  expect(endEvent(exit(0), false, null).usage.peakMemoryBytes).toBeNull();
  expect(endEvent(exit(0), false, { ...tree(null), refusedTasks: 0 }).usage.refusedTasks).toBe(0);
});
