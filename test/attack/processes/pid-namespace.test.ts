import { spawn } from 'node:child_process';
import { readdirSync, writeFileSync } from 'node:fs';
import process from 'node:process';
import { expect, onTestFinished, test } from 'vitest';
import { connectTo } from '../../support/clients/clients.ts';
import { needs } from '../../support/machine/needs.ts';
import { childrenOf } from '../../support/machine/proc.ts';
import { startDaemon } from '../../support/programs/daemon.ts';
import { daemonCommand } from '../../support/programs/programs.ts';

/* A daemon in a pid namespace of its own, as in a container: the kernel lists processes outside of it as pid 0. */

test('a process outside of the pid namespace, in a cgroup of the daemon, turns no signal against the daemon', async () => {
  needs('root', 'cgroup v2');
  // A session of its own, since a signal to pid 0 would reach the group of the tests.
  const inNamespace = ['setsid', 'unshare', '--pid', '--fork', '--mount-proc', '--kill-child'] as const;
  await using daemon = await startDaemon({ command: [...inNamespace, ...daemonCommand()] });
  const [pid = 0] = childrenOf(daemon.pid);
  const started = connectTo(daemon.url).process.start({ process: { cmd: 'sleep', args: ['1000'] } });
  const events = started[Symbol.asyncIterator]();
  await events.next();
  const [leaf] = readdirSync(`${daemon.cgroupRoot}/user`, { withFileTypes: true }).filter((entry) =>
    entry.isDirectory(),
  );
  const outside = spawn('sleep', ['1000'], { stdio: 'ignore' });
  onTestFinished(() => void outside.kill('SIGKILL'));
  writeFileSync(`${daemon.cgroupRoot}/user/${leaf?.name}/cgroup.procs`, String(outside.pid));

  process.kill(pid, 'SIGTERM');
  expect(await daemon.exited).toEqual({ code: 0, signal: null });
  expect(daemon.log.at(-1)?.msg).toBe('stopped');
});
