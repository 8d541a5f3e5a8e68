import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { beforeEach, expect, test } from 'vitest';
import { needs } from '../support/needs.ts';

const GUEST = fileURLToPath(new URL('../support/listeners-guest.ts', import.meta.url));
const SCRIPT = 'ip link set lo up && ulimit -n 8192 && exec "$@"';

interface Seen {
  readonly strangers: number;
  readonly slowest: number;
  readonly refused: number;
  readonly answer: string;
  readonly open: number;
  readonly few: readonly number[];
  readonly exitCode: number;
}

let seen: Seen;
beforeEach(async () => {
  needs('mounts', 'ip', 'python3', 'cgroup v2');
  if (seen) return;
  const args = ['--net', 'sh', '-c', SCRIPT, 'sh', process.execPath, GUEST];
  const { stdout } = await promisify(execFile)('unshare', args, { timeout: 110_000 });
  seen = JSON.parse(stdout) as Seen;
}, 120_000);

test('28,000 listeners of one user take half of the forwards, and another user’s is forwarded', () => {
  expect(seen.strangers).toBe(512);
});

test('they do not hold up calls', () => {
  // One turn of the event loop reads a part of them; the limit allows for a busy machine.
  expect(seen.slowest).toBeLessThan(500);
});

test('one user’s listeners do not take all connections', () => {
  expect([seen.refused, seen.open, seen.answer]).toEqual([10, 1000, 'hello']);
});

test('--max-forwards bounds all, and each user has half at most of what the others leave', () => {
  expect([seen.few, seen.exitCode]).toEqual([[2, 3], 0]);
});
