import { expect, test } from 'vitest';
import { PipePoller } from '../../../../../src/daemon/os/pipe-ends.ts';
import { openPipes } from '../../../../../src/daemon/services/process/channels.ts';
import { ROOT } from '../../../../support/users.ts';

const WRITTEN = 60_000;

test('pipes that are paused are drained when they go on, and tell that another process holds them open', async () => {
  let received = 0;
  const { process: started, channels } = await openPipes(
    {
      ...{ file: '/bin/sh', args: ['sh', '-c', `sleep 100 & head -c ${WRITTEN} /dev/zero`], cwd: '/' },
      ...{ environment: { PATH: '/usr/bin:/bin' }, user: ROOT, cgroup: null, limitMs: 10_000 },
    },
    false,
    { poller: new PipePoller(), process: 1, totals: { stdout: 0, stderr: 0, pty: 0 } },
    (_stream, bytes) => {
      received += bytes.length;
    },
  );
  try {
    channels.setPaused(true);
    await started.exit;
    const drained = channels.drained();
    expect([drained instanceof Promise, received]).toEqual([true, 0]);
    channels.setPaused(false);
    expect(await drained).toBe(true);
    expect(received).toBe(WRITTEN);
  } finally {
    process.kill(-started.pid, 'SIGKILL');
  }
  await channels.closed;
  expect(channels.ends).toMatchObject({ stdout: null, stderr: null });
});
