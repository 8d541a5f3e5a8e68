import { symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { makeLimitedCgroup } from '../../../../../../src/daemon/services/process/limits/limits.ts';
import { scratch } from '../../../../../support/machine/scratch.ts';

const NONE = { cpuWeight: null, cpuPercent: null, tasks: null, openFiles: null, fileBytes: null, nice: null };

test('a limit that the kernel has no room for now is refused as such, and not as one that cannot be kept', () => {
  const parent = scratch();
  writeFileSync(join(parent, 'cgroup.controllers'), 'memory pids');
  symlinkSync('/dev/full', join(parent, 'cgroup.subtree_control'));
  const make = () => makeLimitedCgroup(join(parent, 'one'), { ...NONE, memoryBytes: 1 });
  expect(make).toThrow(expect.objectContaining({ kind: 'no_space' }));
  expect(make).toThrow('cannot start a process with limits.memoryBytes: ENOSPC');
});
