import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { constants } from 'node:os';
import { expect, test } from 'vitest';
import {
  MAX_SIGNAL,
  SIGKILL,
  SIGTERM,
  signalGroup,
  signalName,
  signalProcess,
  signalText,
} from '../../../../../src/daemon/linux/system/signals.ts';

test('every signal has the name that bash prints', () => {
  const script = `for i in $(seq ${MAX_SIGNAL}); do echo "$i SIG$(kill -l $i)"; done 2>&1`;
  const lines = String(execFileSync('bash', ['-c', script]))
    .trim()
    .split('\n');
  expect(lines).toHaveLength(MAX_SIGNAL);
  for (const line of lines) {
    const [number = '', name = ''] = line.split(' ');
    // bash names the upper half of the real-time signals relative to SIGRTMAX.
    const fromTop = /^SIGRTMAX(?:-(\d+))?$/.exec(name);
    const wanted = fromTop ? `SIGRTMIN+${MAX_SIGNAL - 34 - Number(fromTop[1] ?? 0)}` : name;
    // The C library reserves 32 and 33, which have no name.
    expect(signalName(Number(number))).toBe(wanted === 'SIG' ? `SIG${number}` : wanted);
  }
});

test('every signal has the number that Node knows', () => {
  for (const [name, number] of Object.entries(constants.signals)) {
    // Aliases: two names for one number.
    if (name !== 'SIGIOT' && name !== 'SIGPOLL' && name !== 'SIGUNUSED')
      expect(signalName(number)).toBe(name);
  }
  expect([SIGKILL, SIGTERM]).toEqual([constants.signals.SIGKILL, constants.signals.SIGTERM]);
});

test.each([0, -1, -7])('no signal is sent to the pid %d, which would reach more than a process', (pid) => {
  expect(signalProcess(pid, 0)).toBe(false);
});

test.each([1, 0, -1])('no signal is sent to the group %d, which would reach every process', (group) => {
  expect(signalGroup(group, 0)).toBe(false);
});

test('the text equals that of Go', () => {
  expect([1, 2, 9, 11, 15, 19, 20].map(signalText)).toEqual([
    'hangup',
    'interrupt',
    'killed',
    'segmentation fault',
    'terminated',
    'stopped (signal)',
    'stopped',
  ]);
  expect([32, 37, 64].map(signalText)).toEqual(['signal 32', 'signal 37', 'signal 64']);
});

test('a signal reaches a process or a group', async () => {
  const one = spawn('sleep', ['300']);
  expect(signalProcess(one.pid ?? 0, 40)).toBe(true);
  await once(one, 'exit');

  const group = spawn('sh', ['-c', 'sleep 300 & sleep 300 & echo; wait'], { detached: true });
  await once(group.stdout, 'data');
  expect(signalGroup(group.pid ?? 0, SIGKILL)).toBe(true);
  // The pipe is closed when the last process of the group has ended.
  await once(group.stdout, 'close');
});

test('a process that has ended is no error, an invalid signal is', async () => {
  const child = spawn('true', { detached: true });
  await once(child, 'exit');
  expect(signalProcess(child.pid ?? 0, SIGTERM)).toBe(false);
  expect(signalGroup(child.pid ?? 0, SIGTERM)).toBe(false);
  expect(() => signalProcess(process.pid, 4711)).toThrow('EINVAL');
});
