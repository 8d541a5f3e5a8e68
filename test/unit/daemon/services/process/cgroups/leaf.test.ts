import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { expect, onTestFinished, test } from 'vitest';
import { Cgroup } from '../../../../../../src/daemon/linux/cgroups/cgroup2.ts';
import { SIGTERM } from '../../../../../../src/daemon/linux/system/signals.ts';
import { Leaves } from '../../../../../../src/daemon/services/process/cgroups/leaf.ts';
import { scratch } from '../../../../../support/machine/scratch.ts';

/** A leaf that lists these pids, and a process that leads a group of its own. */
async function setUp(pids: (leader: number) => readonly number[]) {
  const path = scratch();
  const child = spawn('sleep', ['1000'], { detached: true, stdio: 'ignore' });
  await once(child, 'spawn');
  const ended = once(child, 'exit');
  onTestFinished(() => void child.kill('SIGKILL'));
  const leader = child.pid ?? 0;
  writeFileSync(`${path}/cgroup.procs`, pids(leader).join('\n'));
  return { leaf: new Leaves(false).existing(path), leader, child, ended };
}

test('a group is signalled when one of it is found', async () => {
  const { leaf, leader, ended } = await setUp((pid) => [0, process.pid, pid]);
  leaf.signalGroup(leader, SIGTERM);
  expect(await ended).toEqual([null, 'SIGTERM']);
});

test('a group that has none in the cgroup is that of somebody else, and not signalled', async () => {
  const { leaf, leader, child } = await setUp(() => [0, process.pid]);
  leaf.signalGroup(leader, SIGTERM);
  expect([child.exitCode, child.signalCode]).toEqual([null, null]);
  process.kill(leader, 0);
});

test('refused tasks are told of a cgroup with limits alone, also by a later program', () => {
  const parent = scratch();
  const leaves = new Leaves(false);
  const told = [true, false].map((isLimited) => {
    const { path } = leaves.create(new Cgroup(parent), isLimited);
    mkdirSync(path);
    writeFileSync(`${path}/pids.events`, 'max 3\n');
    return new Leaves(false).existing(path).usage(false).refusedTasks;
  });
  expect(told).toEqual([3, null]);
  const { path } = leaves.create(new Cgroup(parent), true);
  expect(leaves.existing(path).usage(false).refusedTasks).toBeNull();
});
