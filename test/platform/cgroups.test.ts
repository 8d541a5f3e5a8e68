import { execFileSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { SandboxCgroup } from '../../examples/platform/cgroup.ts';
import { cgroupMount } from '../support/machine/cgroups.ts';

test('a cgroup is removed whose sandbox has made cgroups that are deeper than a path can be long', async () => {
  const cgroup = new SandboxCgroup(cgroupMount(), `envd-fixture-${randomUUID()}`);
  cgroup.make(64);
  const names =
    'n=$(printf %0200d 0); i=0; while [ $i -lt 40 ]; do mkdir $n && cd -P $n || exit 1; i=$((i+1)); done';
  execFileSync('bash', ['-c', names], { cwd: cgroup.path });
  await cgroup.remove();
  expect(cgroup.exists).toBe(false);
});
