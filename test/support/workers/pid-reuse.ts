import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { Quota } from '../../../src/base/quota.ts';
import { SIGTERM } from '../../../src/daemon/linux/system/signals.ts';
import { UserDatabase } from '../../../src/daemon/linux/system/users.ts';
import { Guest } from '../../../src/daemon/services/guest/guest.ts';
import { WorkloadCgroups } from '../../../src/daemon/services/process/cgroups/cgroups.ts';
import type { ManagedProcess } from '../../../src/daemon/services/process/lifecycle/process.ts';
import { ProcessTable } from '../../../src/daemon/services/process/table.ts';
import { testCgroup } from '../machine/cgroups.ts';
import { testLanes } from '../services/lanes.ts';
import { until } from '../until.ts';

// Starts processes that get the pid of a reaped one whose pipes a background child holds open. Runs in a pid namespace,
// where no other process takes pids; prints the results as JSON.
const users = new UserDatabase();
using cgroup = testCgroup();
using cgroups = WorkloadCgroups.create(`${cgroup.path}/workload`);
const options = {
  path: '/usr/bin:/bin',
  historyBytes: 0,
  startTimeout: 10,
  maxProcesses: 1024,
  unread: new Quota(64 * 1024 * 1024),
  lanes: testLanes,
};
const table = new ProcessTable(new Guest(users), cgroups, options);

async function start(command: string): Promise<ManagedProcess> {
  using _ = await table.start(
    {
      config: { command: 'bash', args: ['-c', command], environment: {}, cwd: '/' },
      user: users.lookup('root'),
      tag: null,
      terminal: null,
      stdin: false,
      startId: null,
    },
    null,
  );
  const process = table.list().at(-1);
  if (!process) throw new Error('not started');
  return process;
}

/** A reaped process whose output has not ended, and another one that `next` starts with its pid. */
async function startTwo<T extends { readonly pid?: number | undefined; kill(): unknown }>(
  next: () => Promise<T>,
): Promise<[ManagedProcess, T]> {
  for (;;) {
    const first = await start('setsid sleep 300 & disown');
    await until(`process ${first.pid} is gone`, () => !exists(first.pid));
    // Source: proc_sys_kernel(5). A new thread of this process may take the pid instead.
    writeFileSync('/proc/sys/kernel/ns_last_pid', String(first.pid - 1));
    const second = await next();
    if (second.pid === first.pid) return [first, second];
    second.kill();
  }
}

function exists(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

async function startForeign(): Promise<ChildProcess> {
  const child = spawn('sleep', ['300'], { detached: true, stdio: 'ignore' });
  await once(child, 'spawn');
  return child;
}

const [first, second] = await startTwo(() => start('exec sleep 300'));
await first.ended;
const found = table.find({ pid: first.pid }) === second;

const [third, foreign] = await startTwo(startForeign);
third.signal(SIGTERM);
await third.ended;
const exit = once(foreign, 'exit');
foreign.kill('SIGINT');
const [, endedBy] = await exit;
await table.stop();
process.stdout.write(JSON.stringify({ found, endedBy }));
