import { readdirSync } from 'node:fs';
import { expect, test } from 'vitest';
import { PipePoller, type ReadEnd } from '../../../../../../src/daemon/linux/processes/pipe-ends.ts';
import { openChannels } from '../../../../../../src/daemon/services/process/output/channels.ts';
import { ROOT } from '../../../../../support/machine/users.ts';
import { historyOf, outputOf } from '../../../../../support/services/history.ts';

const WRITTEN = 60_000;

const launch = (script: string) => ({
  ...{ file: '/bin/sh', args: ['sh', '-c', script], cwd: '/', environment: { PATH: '/usr/bin:/bin' } },
  ...{ user: ROOT, cgroup: null, limitMs: 10_000 },
});

test('pipes that are paused are drained when they go on, and tell that another process holds them open', async () => {
  const output = outputOf(historyOf(0));
  const { spawned, channels } = await openChannels(
    launch(`sleep 100 & head -c ${WRITTEN} /dev/zero`),
    { terminal: null, stdin: false },
    new PipePoller(),
    output,
  );
  try {
    channels.setPaused(true);
    await spawned.exit;
    const drained = channels.drained();
    expect([drained instanceof Promise, output.totals.stdout]).toEqual([true, 0]);
    channels.setPaused(false);
    expect(await drained).toBe(true);
    expect(output.totals.stdout).toBe(WRITTEN);
  } finally {
    process.kill(-spawned.pid, 'SIGKILL');
  }
  await channels.closed;
  expect(channels.ends).toMatchObject({ stdout: null, stderr: null });
});

/** It has no memory to wait for another pipe than the first. */
class Exhausted extends PipePoller {
  #pipes = 0;

  override read(...args: Parameters<PipePoller['read']>): ReadEnd {
    this.#pipes += 1;
    if (this.#pipes > 1) throw new Error('ENOMEM');
    return super.read(...args);
  }
}

test('a process whose output cannot be read is killed, and its pipes are closed', async () => {
  const descriptors = () => readdirSync('/proc/self/fd').length;
  const poller = new Exhausted();
  const output = outputOf(historyOf(0));
  const before = descriptors();
  await expect(
    openChannels(launch('sleep 100 & sleep 100'), { terminal: null, stdin: true }, poller, output),
  ).rejects.toThrow('ENOMEM');
  // Of its output too, once all processes that hold it have ended.
  await expect.poll(descriptors).toBe(before);
});
