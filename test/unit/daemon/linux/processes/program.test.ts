import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test, vi } from 'vitest';
import { reapOthers } from '../../../../../src/daemon/linux/processes/program.ts';
import { followProcess } from '../../../../../src/daemon/linux/processes/spawn.ts';

vi.mock('../../../../../src/daemon/linux/processes/spawn.ts', () => ({ followProcess: vi.fn() }));

const PROGRAM = fileURLToPath(
  new URL('../../../../../src/daemon/linux/processes/program.ts', import.meta.url),
);

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

/** Holds signals after one that was caught and not handled, sends another one, and takes that in the end. */
const HOLDS = `
import { holdSignals, takeWaitingSignals } from ${JSON.stringify(PROGRAM)};
const caught = [];
process.on('SIGTERM', () => caught.push('SIGTERM'));
process.on('SIGINT', () => caught.push('SIGINT'));
process.kill(process.pid, 'SIGTERM');
await holdSignals();
console.log(...caught);
process.kill(process.pid, 'SIGINT');
await new Promise((resolve) => setTimeout(resolve, 50));
console.log(...caught);
process.once('SIGINT', () => console.log(...caught));
takeWaitingSignals();
setInterval(() => caught.length > 1 && process.exit(), 10);
`;

test('a signal that was caught is handled before others wait, and these are handled when they are taken', async () => {
  const child = spawn(process.execPath, ['--input-type=module', '-e', HOLDS], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  expect((await text(child.stdout)).split('\n')).toEqual(['SIGTERM', 'SIGTERM', 'SIGTERM SIGINT', '']);
});
