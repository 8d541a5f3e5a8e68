import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { ExclusiveLock } from '../../../../../src/base/exclusion.ts';
import { Cgroup } from '../../../../../src/daemon/linux/cgroups/cgroup2.ts';
import { Freezer } from '../../../../../src/daemon/services/pause/freezer.ts';
import { blockedWriter, startIn, testCgroup } from '../../../../support/machine/cgroups.ts';
import { scratch } from '../../../../support/machine/scratch.ts';

const never = new AbortController().signal;
const hierarchy = { mode: 'hierarchy', maxCgroups: 10_000, maxWaitMs: 20_000 } as const;
const CGROUPS = 1000;
const PROCESSES = 100;

function freezerFor(top: Cgroup): Freezer {
  const make = (path: string) => Cgroup.create(join(top.path, path));
  return new Freezer({
    workload: [make('user'), make('ptys')],
    obstacle: null,
    hierarchy: { top, own: make('system.slice/envd.service') },
    recordFile: join(scratch(), 'frozen.json'),
    lock: new ExclusiveLock(),
    onWatchdog: () => {},
    onStaleRecord: () => {},
  });
}

/** CPU time of all processes in the cgroup, in microseconds. */
function cpuUsed(cgroup: Cgroup): number {
  return Number(/^usage_usec (\d+)$/m.exec(readFileSync(join(cgroup.path, 'cpu.stat'), 'utf8'))?.[1]);
}

test(`${CGROUPS} cgroups with a process each freeze and thaw`, async () => {
  using top = testCgroup();
  using freezer = freezerFor(top);
  const cgroups = Array.from({ length: CGROUPS }, (_, index) => Cgroup.create(top.child(`c-${index}`).path));
  // 0 stands for the writing process itself.
  const script = 'for c in c-*; do (echo 0 >$c/cgroup.procs && exec sleep 1000 >/dev/null) & done; wait';
  spawn('sh', ['-c', script], { cwd: top.path, stdio: ['ignore', 'ignore', 'inherit'] });
  const settled = () => cgroups.filter((cgroup) => !cgroup.populated()).length;
  await expect.poll(settled).toBe(0);

  const statistics = await freezer.freeze(hierarchy, never);
  expect(statistics).toMatchObject({ visited: CGROUPS + 4, allowlisted: 2, truncated: false });
  expect(statistics).toMatchObject({ requested: CGROUPS + 2, frozen: CGROUPS + 2, notFrozen: 0, failed: 0 });
  expect(cgroups.filter((cgroup) => !cgroup.isFrozen())).toEqual([]);
  expect(freezer.audit()).toMatchObject({ escaped: 0, violations: 0 });
  freezer.thaw();
  expect(cgroups.filter((cgroup) => cgroup.freezeRequested())).toEqual([]);
  await expect.poll(() => cgroups.filter((cgroup) => cgroup.isFrozen()).length).toBe(0);
});

test(`${PROCESSES} busy processes use no CPU until the thaw`, async () => {
  using top = testCgroup();
  using freezer = freezerFor(top);
  const user = top.child('user');
  const shell = await startIn(user, `for i in $(seq ${PROCESSES}); do (while :; do :; done) & done; wait`);
  await expect.poll(() => user.processes().length).toBe(PROCESSES + 1);
  expect(await freezer.freeze({ ...hierarchy, mode: 'legacy' }, never)).toMatchObject({ frozen: 2 });
  const used = cpuUsed(user);
  // Long enough for any of them to run, if it were not frozen.
  await sleep(100);
  expect(cpuUsed(user)).toBe(used);
  freezer.thaw();
  await expect.poll(() => cpuUsed(user)).toBeGreaterThan(used);
  const ended = once(shell, 'exit');
  user.kill();
  await ended;
});

test('a cgroup that vanishes during the wait counts as unobservable', async () => {
  using top = testCgroup();
  using freezer = freezerFor(top);
  using writer = await blockedWriter(top.child('user'));
  const freezing = freezer.freeze({ ...hierarchy, mode: 'legacy', maxWaitMs: 60_000 }, never);
  const refuge = Cgroup.create(top.child('refuge').path);
  writeFileSync(join(refuge.path, 'cgroup.procs'), String(writer.pid));
  await expect.poll(() => top.child('user').remove()).toBe(true);
  expect(await freezing).toMatchObject({ requested: 2, frozen: 1, notFrozen: 0, unobservable: 1 });
  writer.unblock();
  freezer.thaw();
});
