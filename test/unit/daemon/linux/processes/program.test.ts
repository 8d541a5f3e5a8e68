import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';
import { reapOthers } from '../../../../../src/daemon/linux/processes/program.ts';
import { followProcess } from '../../../../../src/daemon/linux/processes/spawn.ts';

vi.mock('../../../../../src/daemon/linux/processes/spawn.ts', () => ({ followProcess: vi.fn() }));

/** The processes of this machine, as a kernel shows them that was built without CONFIG_PROC_CHILDREN. */
function procWithoutChildren(): string {
  const directory = mkdtempSync(join(tmpdir(), 'envd-proc-'));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  for (const name of readdirSync('/proc').filter((entry) => Number.isInteger(Number(entry))))
    symlinkSync(join('/proc', name), join(directory, name));
  return directory;
}

test.each([
  ['where the kernel lists children', () => '/proc'],
  ['where it does not', procWithoutChildren],
])('the helpers of an earlier program are reaped, and nothing else: %s', async (_where, proc) => {
  const children = [spawn('sleep', ['1000']), spawn('sleep', ['1000'])];
  onTestFinished(() => children.forEach((child) => void child.kill()));
  await Promise.all(children.map((child) => once(child, 'spawn')));
  const [helper, known] = children.map((child) => child.pid ?? 0) as [number, number];
  vi.mocked(followProcess).mockClear();
  reapOthers(new Set([known]), proc());
  const reaped = vi.mocked(followProcess).mock.calls.map(([pid]) => pid);
  expect(reaped).toContain(helper);
  expect(reaped).not.toContain(known);
  expect(reaped).not.toContain(process.pid);
  expect(reaped).not.toContain(process.ppid);
});
