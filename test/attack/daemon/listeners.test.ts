import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { beforeEach, expect, test } from 'vitest';
import { needs } from '../../support/machine/needs.ts';

const GUEST = fileURLToPath(new URL('../../support/in-guest/listeners-guest.ts', import.meta.url));
const SCRIPT = 'ip link set lo up && ulimit -n 8192 && exec "$@"';

interface Seen {
  readonly strangers: number;
  readonly turns: number;
  readonly found: string;
  readonly refused: number;
  readonly answer: string;
  readonly open: number;
  readonly few: readonly number[];
  readonly fair: readonly number[];
  readonly exitCode: number;
}

let seen: Seen;
beforeEach(async () => {
  needs('mounts', 'ip', 'python3', 'cgroup v2');
  if (seen) return;
  const args = ['--net', 'sh', '-c', SCRIPT, 'sh', process.execPath, GUEST];
  const { stdout } = await promisify(execFile)('unshare', args, { timeout: 280_000 });
  seen = JSON.parse(stdout) as Seen;
});

test('28,000 listeners of one user take half of the forwards, and another user’s is forwarded', () => {
  expect(seen.strangers).toBe(512);
});

test('the event loop goes on while they are read', () => {
  // 2,048 in a turn.
  expect(seen.turns).toBeGreaterThanOrEqual(10);
});

test('84,000 listeners at other addresses do not hide one', () => {
  expect(seen.found).toBe('hello');
});

test('one user’s listeners do not take all connections', () => {
  expect([seen.refused, seen.open, seen.answer]).toEqual([10, 1000, 'hello']);
});

test('--max-forwards bounds all, each user has half of it at most, and two leave a third his share', () => {
  expect([seen.few, seen.fair, seen.exitCode]).toEqual([[3, 3, 0], [2, 2, 2], 0]);
});
