import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { runTool } from '../../../../../src/daemon/linux/system/tool.ts';
import { runs } from '../../../../support/machine/proc.ts';
import { scratch } from '../../../../support/machine/scratch.ts';

const shell = (script: string, limitMs = 10_000, ...args: string[]) =>
  runTool('sh', ['-c', script, 'sh', ...args], limitMs);

test('runs a program with a minimal environment', async () => {
  const file = join(scratch(), 'out');
  await shell('{ pwd; echo "$LC_ALL"; env | grep -c VITEST; cat; } > "$1"; true', undefined, file);
  expect(readFileSync(file, 'utf8')).toBe('/\nC\n0\n');
});

describe('fails', () => {
  test.each([
    ['echo no such export >&2; exit 32', "'sh' failed (32): no such export"],
    ['kill -TERM $$', "'sh' failed (SIGTERM): "],
    ['printf %2000s x | tr " " y >&2; exit 1', `'sh' failed (1): ${'y'.repeat(1000)}`],
  ])('%s', async (script, message) => {
    await expect(shell(script)).rejects.toMatchObject({ kind: 'unavailable', message });
  });

  test('when the program is not installed', async () => {
    await expect(runTool('no-such-tool', [], 1000)).rejects.toMatchObject({
      kind: 'failed_precondition',
      message: "'no-such-tool' is not installed",
    });
    const file = join(scratch(), 'tool');
    writeFileSync(file, '');
    await expect(runTool(file, [], 1000)).rejects.toMatchObject({ code: 'EACCES' });
  });
});

test('kills the program and its children at the time limit', async () => {
  const file = join(scratch(), 'pids');
  // More than the shell of a busy machine needs until it waits.
  const hanging = shell('sleep 1000 & echo $$ $! > "$1"; wait', 3000, file);
  await expect(hanging).rejects.toMatchObject({
    kind: 'deadline_exceeded',
    message: "'sh' did not finish within 3 s and was killed",
  });
  const pids = readFileSync(file, 'utf8').trim().split(' ').map(Number);
  expect(pids.length).toBe(2);
  for (const pid of pids) await expect.poll(() => runs(pid)).toBe(false);
});

test('does not wait for a child that keeps the output open', async () => {
  const file = join(scratch(), 'pid');
  await shell('sleep 1000 & echo $! > "$1"', 5000, file);
  const pid = Number(readFileSync(file, 'utf8'));
  expect(existsSync(`/proc/${pid}`)).toBe(true);
  process.kill(pid);
});
