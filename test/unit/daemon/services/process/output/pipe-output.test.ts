import { closeSync } from 'node:fs';
import { setImmediate as turn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { PipePoller } from '../../../../../../src/daemon/linux/processes/pipe-ends.ts';
import { spawnWithPipes } from '../../../../../../src/daemon/linux/processes/spawn.ts';
import { PipeOutput } from '../../../../../../src/daemon/services/process/output/pipe-output.ts';
import { ROOT } from '../../../../../support/machine/users.ts';

const WRITTEN = 60_000;

test('what was written before the end is waited for while the source is paused, and not who holds the pipe open', async () => {
  const { process: started, pipes } = await spawnWithPipes(
    {
      ...{ file: '/bin/sh', args: ['sh', '-c', `sleep 100 & head -c ${WRITTEN} /dev/zero`], cwd: '/' },
      ...{ environment: { PATH: '/usr/bin:/bin' }, user: ROOT, cgroup: null, limitMs: 10_000 },
    },
    false,
  );
  closeSync(pipes.stderr);
  let received = 0;
  const source = { poller: new PipePoller(), process: 1, totals: { stdout: 0, stderr: 0, pty: 0 } };
  const onOutput = (_stream: string, bytes: Buffer) => {
    received += bytes.length;
  };
  const output = new PipeOutput(source, 'stdout', pipes.stdout, onOutput, false);
  try {
    output.setPaused(true);
    await started.exit;
    const drained = Promise.resolve(output.drained()).then(() => received);
    await turn();
    expect(received).toBe(0);
    output.setPaused(false);
    expect(await drained).toBe(WRITTEN);
    expect(output.descriptor).not.toBeNull();
  } finally {
    process.kill(-started.pid, 'SIGKILL');
  }
  await output.closed;
});
