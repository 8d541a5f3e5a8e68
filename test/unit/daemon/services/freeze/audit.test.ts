import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ExclusiveLock } from '../../../../../src/base/exclusion.ts';
import { Cgroup } from '../../../../../src/daemon/os/cgroup2.ts';
import { Freezer } from '../../../../../src/daemon/services/freeze/freezer.ts';
import { blockedWriter, testCgroup } from '../../../../support/cgroups.ts';
import { scratch } from '../../../../support/scratch.ts';

const never = new AbortController().signal;
const legacy = { mode: 'legacy', maxCgroups: 100, maxWaitMs: 1000 } as const;
const NOTHING = { requested: 0, stillFrozen: 0, notFrozen: 0, vanished: 0, late: 0 };

function freezerFor(top: Cgroup): Freezer {
  const workload = ['user', 'ptys', 'more'].map((name) => Cgroup.create(join(top.path, name)));
  const recordFile = join(scratch(), 'frozen.json');
  return new Freezer({
    workload,
    obstacle: null,
    hierarchy: null,
    recordFile,
    lock: new ExclusiveLock(),
    onWatchdog: () => {},
  });
}

test('the audit counts frozen cgroups in the documented order, and nothing before a freeze and after a thaw', async () => {
  using top = testCgroup();
  using freezer = freezerFor(top);
  expect(freezer.audit()).toEqual(NOTHING);
  await freezer.freeze(legacy, never);
  expect(freezer.audit()).toEqual({ ...NOTHING, requested: 3, stillFrozen: 3 });
  expect(Object.keys(freezer.audit()).join(' ')).toBe('requested stillFrozen notFrozen vanished late');
  await freezer.thaw();
  expect(freezer.audit()).toEqual(NOTHING);
});

test('the audit counts cgroups that were thawed by others or have vanished', async () => {
  using top = testCgroup();
  using freezer = freezerFor(top);
  await freezer.freeze(legacy, never);
  top.child('user').thaw();
  top.child('ptys').remove();
  expect(freezer.audit()).toEqual({ ...NOTHING, requested: 3, stillFrozen: 1, notFrozen: 1, vanished: 1 });
});

test('the audit counts cgroups that froze after the response', async () => {
  using top = testCgroup();
  using freezer = freezerFor(top);
  using writer = await blockedWriter(top.child('user'));
  await freezer.freeze({ ...legacy, maxWaitMs: 10 }, never);
  expect(freezer.audit()).toEqual({ ...NOTHING, requested: 3, stillFrozen: 2, notFrozen: 1 });
  writer.unblock();
  const late = { ...NOTHING, requested: 3, stillFrozen: 3, late: 1 };
  await expect.poll(() => freezer.audit()).toEqual(late);
  await freezer.thaw();
  await freezer.freeze(legacy, never);
  expect(freezer.audit()).toEqual({ ...late, late: 0 });
});

test('the audit includes cgroups that a previous daemon froze', async () => {
  using top = testCgroup();
  await freezerFor(top).freeze(legacy, never);
  using next = freezerFor(top);
  expect(next.audit()).toEqual({ ...NOTHING, requested: 3, stillFrozen: 3 });
});
