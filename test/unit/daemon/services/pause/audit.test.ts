import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ExclusiveLock } from '../../../../../src/base/exclusion.ts';
import { Cgroup } from '../../../../../src/daemon/linux/cgroups/cgroup2.ts';
import { Freezer } from '../../../../../src/daemon/services/pause/freezer.ts';
import { startIn, testCgroup } from '../../../../support/machine/cgroups.ts';
import { scratch } from '../../../../support/machine/scratch.ts';
import { until } from '../../../../support/until.ts';

const never = new AbortController().signal;
const hierarchy = { mode: 'hierarchy', maxCgroups: 100, maxWaitMs: 1000 } as const;
const CLEAN = { escaped: 0, violations: 0, truncated: false };

/** A hierarchy with the workload, the daemon's own cgroup, one on the allowlist, and one of the guest. */
function setUp(top: Cgroup, recordFile = join(scratch(), 'frozen.json')) {
  const make = (name: string) => {
    mkdirSync(join(top.path, name), { recursive: true });
    return new Cgroup(join(top.path, name));
  };
  const workload = ['user', 'ptys'].map(make);
  const own = make('envd.service');
  const kept = make('init.scope');
  const docker = make('docker');
  const lock = new ExclusiveLock();
  const create = () =>
    new Freezer({
      workload,
      obstacle: null,
      hierarchy: { top, own },
      recordFile,
      lock,
      onWatchdog: () => {},
      onStaleRecord: () => {},
    });
  return { make, kept, docker, create, freezer: create() };
}

/** Audits until nothing was left out: on a busy machine the time of an audit passes. */
const completeAudit = (freezer: Freezer) =>
  until(
    'an audit is complete',
    () => freezer.audit(),
    (audit) => audit?.truncated === false,
  );

test('only a freeze of the hierarchy is audited, in the documented order', async () => {
  using top = testCgroup();
  const { freezer } = setUp(top);
  using _ = freezer;
  expect(freezer.audit()).toBeNull();
  await freezer.freeze({ ...hierarchy, mode: 'legacy' }, never);
  expect(freezer.audit()).toBeNull();
  await freezer.freeze(hierarchy, never);
  expect(await completeAudit(freezer)).toEqual({ ...CLEAN, visited: 5, frozen: 3 });
  expect(Object.keys(freezer.audit() ?? {}).join(' ')).toBe('visited frozen escaped violations truncated');
});

test('the result is repeated after the thaw until it was reported, and ends with the next freeze', async () => {
  using top = testCgroup();
  const { freezer } = setUp(top);
  using _ = freezer;
  await freezer.freeze(hierarchy, never);
  const audit = await completeAudit(freezer);
  freezer.thaw();
  expect([freezer.audit(), freezer.audit()]).toEqual([audit, audit]);
  expect([freezer.takeAudit(), freezer.takeAudit()]).toEqual([audit, null]);
  expect(freezer.audit()).toBeNull();
  freezer.keepAudit(audit);
  expect(freezer.takeAudit()).toEqual(audit);
  await freezer.freeze(hierarchy, never);
  freezer.audit();
  freezer.thaw();
  await freezer.freeze({ ...hierarchy, mode: 'legacy' }, never);
  expect(freezer.audit()).toBeNull();
});

test('escaped: cgroups with processes that were thawed by others or made after the freeze', async () => {
  using top = testCgroup();
  const { freezer, docker, make } = setUp(top);
  using _ = freezer;
  await startIn(docker, 'exec sleep 1000 >/dev/null');
  await freezer.freeze(hierarchy, never);
  docker.thaw();
  make('empty');
  await startIn(make('late'), 'exec sleep 1000 >/dev/null');
  await expect.poll(() => docker.isFrozen()).toBe(false);
  expect(await completeAudit(freezer)).toEqual({ ...CLEAN, visited: 7, frozen: 2, escaped: 2 });
});

test('violations: cgroups on the allowlist that are frozen', async () => {
  using top = testCgroup();
  const { freezer, kept } = setUp(top);
  using _ = freezer;
  await freezer.freeze(hierarchy, never);
  kept.freeze();
  await expect.poll(() => kept.isFrozen()).toBe(true);
  expect(await completeAudit(freezer)).toEqual({ ...CLEAN, visited: 5, frozen: 3, violations: 1 });
});

test('no more cgroups are looked at than were frozen at most', async () => {
  using top = testCgroup();
  const { freezer } = setUp(top);
  using _ = freezer;
  await freezer.freeze({ ...hierarchy, maxCgroups: 1 }, never);
  const audit = () => freezer.audit();
  const seen = await until('three cgroups are looked at', audit, (last) => last?.visited === 3);
  expect(seen.truncated).toBe(true);
});

test('a freeze by an earlier daemon is audited, too', async () => {
  using top = testCgroup();
  const { freezer, create } = setUp(top);
  await freezer.freeze(hierarchy, never);
  using next = create();
  expect(await completeAudit(next)).toEqual({ ...CLEAN, visited: 5, frozen: 3 });
});
