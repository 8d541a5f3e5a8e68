import { existsSync, readFileSync } from 'node:fs';
import { totalmem } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { Cgroup } from '../../../../../src/daemon/os/cgroup2.ts';
import { WorkloadCgroups, workloadMemory } from '../../../../../src/daemon/services/process/cgroups.ts';
import { startIn, testCgroup } from '../../../../support/cgroups.ts';

const GIB = 1024 ** 3;

test('leaves an eighth of the memory, 128 MiB at most, to the system', () => {
  expect(workloadMemory(GIB / 2)).toBe((GIB / 2 / 8) * 7);
  expect(workloadMemory(8 * GIB)).toBe(8 * GIB - GIB / 8);
});

test('is nothing without cgroups', () => {
  using cgroups = WorkloadCgroups.create(null);
  expect(cgroups).toMatchObject({ user: null, ptys: null });
  expect(cgroups.all()).toEqual([]);
});

test('makes both below the root, and removes them', () => {
  using top = testCgroup();
  const root = top.child('root');
  const cgroups = WorkloadCgroups.create(root.path);
  expect(cgroups.all().map(({ path }) => path)).toEqual([root.child('user').path, root.child('ptys').path]);
  expect(cgroups.all().every((cgroup) => cgroup.exists())).toBe(true);
  cgroups[Symbol.dispose]();
  expect(root.children()).toEqual([]);
});

test('limits them as far as there are controllers', () => {
  using top = testCgroup();
  using cgroups = WorkloadCgroups.create(top.path);
  const [user, ptys] = cgroups.all();
  const memory = String(Math.floor(workloadMemory(totalmem()) / 4096) * 4096);
  expectLimit(user, 'memory.max', memory);
  expectLimit(ptys, 'memory.high', memory);
  expectLimit(user, 'cpu.weight', '50');
  expectLimit(ptys, 'cpu.weight', '200');
  expectLimit(user, 'io.weight', 'default 10');
  expectLimit(ptys, 'io.weight', 'default 50');
});

/** The limit, if the controller is there; which ones are is the machine's business. */
function expectLimit(cgroup: Cgroup | undefined, name: string, value: string): void {
  const file = join(cgroup?.path ?? '', name);
  if (existsSync(file)) expect(readFileSync(file, 'utf8').trim()).toBe(value);
}

test('takes what a daemon before it has left, and leaves what still runs', async () => {
  using top = testCgroup();
  const before = WorkloadCgroups.create(top.path);
  const { user } = before;
  if (!user) throw new Error('no cgroup');
  const child = await startIn(user, 'exec sleep 1000');
  before[Symbol.dispose]();
  using after = WorkloadCgroups.create(top.path);
  expect(after.user?.processes()).toEqual([child.pid]);
});

test('refuses a root that is no cgroup', () => {
  expect(() => WorkloadCgroups.create('/tmp/no-cgroup')).toThrow(
    "not a cgroup v2 directory: '/tmp/no-cgroup'",
  );
});

test('removes the empty leaves of a daemon before it, and no others', async () => {
  using top = testCgroup();
  const before = WorkloadCgroups.create(top.path);
  const busy = Cgroup.create(`${before.user?.path}/1-1`);
  Cgroup.create(`${before.user?.path}/1-2`);
  const child = await startIn(busy, 'exec sleep 1000');
  using after = WorkloadCgroups.create(top.path);
  expect(after.user?.children().map(({ path }) => path)).toEqual([busy.path]);
  expect(busy.processes()).toEqual([child.pid]);
});
