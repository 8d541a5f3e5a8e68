import { existsSync, readFileSync } from 'node:fs';
import { totalmem } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { Cgroup } from '../../../../../../src/daemon/linux/cgroups/cgroup2.ts';
import { WorkloadCgroups } from '../../../../../../src/daemon/services/process/cgroups/cgroups.ts';
import { startIn, testCgroup } from '../../../../../support/machine/cgroups.ts';

test('there are none without a root', () => {
  using cgroups = WorkloadCgroups.create(null);
  expect(cgroups).toMatchObject({ user: null, ptys: null });
  expect(cgroups.all()).toEqual([]);
});

test('both are made below the root, and removed with it', () => {
  using top = testCgroup();
  const root = top.child('root');
  const cgroups = WorkloadCgroups.create(root.path);
  expect(cgroups.all().map(({ path }) => path)).toEqual([root.child('user').path, root.child('ptys').path]);
  expect(cgroups.all().every((cgroup) => cgroup.exists())).toBe(true);
  cgroups[Symbol.dispose]();
  expect(root.children()).toEqual([]);
});

const WEIGHTS = { cpuWeights: { user: 50, ptys: 200 }, ioWeights: { user: 10, ptys: 50 } };

test('limits are set for the available controllers', () => {
  using top = testCgroup();
  using cgroups = WorkloadCgroups.create(top.path, { maxTasks: 1234, maxMemory: null, ...WEIGHTS });
  const [user, ptys] = cgroups.all();
  // A sixth, at most 160 MiB, is left to the system, and what the kernel keeps free.
  const keptFree = 1024 * Number(readFileSync('/proc/sys/vm/min_free_kbytes', 'utf8'));
  const wanted = totalmem() - Math.min(totalmem() / 6, 160 * 1024 * 1024) - keptFree;
  const memory = String(Math.floor(wanted / 4096) * 4096);
  // The available controllers depend on the machine.
  const controllers = readFileSync(join(top.path, 'cgroup.controllers'), 'utf8').trim().split(' ');
  for (const [cgroup, name, value] of [
    [user, 'memory.max', memory],
    [ptys, 'memory.high', memory],
    [new Cgroup(top.path), 'memory.max', memory],
    [user, 'cpu.weight', '50'],
    [ptys, 'cpu.weight', '200'],
    [user, 'io.weight', 'default 10'],
    [ptys, 'io.weight', 'default 50'],
    [user, 'pids.max', '1234'],
    [ptys, 'pids.max', '1234'],
  ] as const) {
    const [controller = ''] = name.split('.');
    expect([name, limitOf(cgroup, name)]).toEqual([name, controllers.includes(controller) ? value : null]);
  }
  expect(cgroups.limitsTasks).toBe(controllers.includes('pids'));
});

test('limits can be given', () => {
  using top = testCgroup();
  const [cpuWeights, ioWeights] = [
    { user: 1, ptys: 10_000 },
    { user: 7, ptys: 8 },
  ];
  using cgroups = WorkloadCgroups.create(top.path, {
    ...{ maxTasks: 7, maxMemory: 2 ** 30, cpuWeights, ioWeights },
  });
  const wanted = [
    ...['memory.max 1073741824', 'memory.high 1073741824', 'pids.max 7', 'cpu.weight 10000'],
    'io.weight default 8',
  ];
  for (const line of wanted) {
    const [, name = '', value = ''] = /^(\S+) (.*)$/.exec(line) ?? [];
    expect([value, null]).toContain(limitOf(cgroups.all()[1], name));
  }
});

/** Null when there is no such file. */
function limitOf(cgroup: Cgroup | undefined, name: string): string | null {
  const file = join(cgroup?.path ?? '', name);
  return existsSync(file) ? readFileSync(file, 'utf8').trim() : null;
}

test('existing cgroups of a previous daemon are used, with their processes', async () => {
  using top = testCgroup();
  const before = WorkloadCgroups.create(top.path);
  const { user } = before;
  if (!user) throw new Error('no cgroup');
  const child = await startIn(user, 'exec sleep 1000');
  before[Symbol.dispose]();
  using after = WorkloadCgroups.create(top.path);
  expect(after.user?.processes()).toEqual([child.pid]);
});

test('a root that is no cgroup is refused', () => {
  expect(() => WorkloadCgroups.create('/tmp/no-cgroup')).toThrow(
    "not a cgroup v2 directory: '/tmp/no-cgroup'",
  );
});

test('empty cgroups of a previous daemon are removed, others are kept', async () => {
  using top = testCgroup();
  const before = WorkloadCgroups.create(top.path);
  const busy = Cgroup.create(`${before.user?.path}/1-1`);
  Cgroup.create(`${before.user?.path}/1-2`);
  const child = await startIn(busy, 'exec sleep 1000');
  using after = WorkloadCgroups.create(top.path);
  after.removeEmptyLeaves();
  expect(after.user?.children().map(({ path }) => path)).toEqual([busy.path]);
  expect(busy.processes()).toEqual([child.pid]);
});
