import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { expect, onTestFinished, test } from 'vitest';
import { testCgroup } from '../../support/machine/cgroups.ts';
import { startDaemon } from '../../support/programs/daemon.ts';

/* The lock of a daemon on its cgroup root must not be one that a process of the guest can hold. */

/** Locks the cgroup and each of its files that can be opened, and says so. */
const LOCK_ALL = `
  for file in "$0" "$0"/*; do
    for mode in '<' '>>'; do
      eval "exec {descriptor}$mode\\"\\$file\\"" && flock --nonblock "$descriptor" && locked=$((locked + 1))
    done
  done 2>/dev/null
  echo "$locked"
  exec sleep 1000`;

test('a daemon starts while another user holds locks on all that he can open of its root', async () => {
  using root = testCgroup();
  const args = [`--cgroup-root=${root.path}`];
  // It leaves the root as a daemon does.
  await (await startDaemon({ args }))[Symbol.asyncDispose]();
  const user = ['--reuid=65534', '--regid=65534', '--clear-groups'];
  const holder = spawn('setpriv', [...user, 'bash', '-c', LOCK_ALL, root.path], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  onTestFinished(() => void holder.kill());
  const [locked] = await once(holder.stdout, 'data');
  expect(Number(locked)).toBeGreaterThan(3);
  await using daemon = await startDaemon({ args });
  expect((await fetch(`${daemon.url}/health`)).status).toBe(204);
});
