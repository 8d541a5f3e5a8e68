import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { connectTo } from '../../support/clients/clients.ts';
import { testCgroup } from '../../support/machine/cgroups.ts';
import { startDaemon } from '../../support/programs/daemon.ts';

/* The locks of a daemon on its cgroups must not be those that a process of the guest can hold. */

const NOBODY = ['--reuid=65534', '--regid=65534', '--clear-groups'];

/** Locks each file that can be opened, and says how many that are. */
const LOCK_ALL = `
  for file; do
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
  const files = readdirSync(root.path).map((name) => join(root.path, name));
  const holder = spawn('setpriv', [...NOBODY, 'bash', '-c', LOCK_ALL, 'bash', root.path, ...files], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  onTestFinished(() => void holder.kill());
  const [locked] = await once(holder.stdout, 'data');
  expect(Number(locked)).toBeGreaterThan(3);
  await using daemon = await startDaemon({ args });
  expect((await fetch(`${daemon.url}/health`)).status).toBe(204);
});

/*
 * Whoever can open a directory for reading can keep its lock: he lists it into memory that never comes. A start, the removal of
 * a cgroup and the look-up of a name in it then wait.
 */
test('no other user can open the directories of the daemon for reading', async () => {
  using root = testCgroup();
  chmodSync(root.path, 0o755); // An earlier daemon made it.
  await using daemon = await startDaemon({ args: [`--cgroup-root=${root.path}`] });
  const events = connectTo(daemon.url).process.start({ process: { cmd: 'sleep', args: ['1000'] } });
  await events[Symbol.asyncIterator]().next();
  const workload = ['user', 'ptys'].map((kind) => root.child(kind));
  const leaves = workload.flatMap((cgroup) => cgroup.children());
  expect(leaves).toHaveLength(1);
  const paths = [root, ...workload, ...leaves].map(({ path }) => path);
  const script = 'for path; do test -r "$path" && echo "$path"; done; cat "$4/cgroup.type"';
  const command = ['sh', '-c', script, 'sh', ...paths];
  expect(execFileSync('setpriv', [...NOBODY, ...command], { encoding: 'utf8' })).toBe('domain\n');
});
