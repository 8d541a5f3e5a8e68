import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { expect, onTestFinished, test } from 'vitest';
import { SIGTERM } from '../../../../../../src/daemon/linux/system/signals.ts';
import { Leaves } from '../../../../../../src/daemon/services/process/cgroups/leaf.ts';
import { scratch } from '../../../../../support/machine/scratch.ts';

const NEVER = new AbortController().signal;

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

/** Turns of the event loop until the work is done. */
async function turnsOf(work: Promise<unknown>): Promise<number> {
  let turns = 0;
  let isDone = false;
  const count = () => {
    turns++;
    if (!isDone) setImmediate(count);
  };
  setImmediate(count);
  await work.finally(() => {
    isDone = true;
  });
  return turns;
}

test('a group is looked for in bounded turns, and signalled when one of it is found', async () => {
  const { leaf, leader, ended } = await setUp((pid) => [...Array(2000).fill(process.pid), pid]);
  expect(await turnsOf(leaf.signalGroup(leader, SIGTERM, NEVER))).toBeGreaterThan(20);
  expect(await ended).toEqual([null, 'SIGTERM']);
});

test('a group that has none in the cgroup is that of somebody else, and not signalled', async () => {
  const { leaf, leader, child } = await setUp(() => [process.pid]);
  await leaf.signalGroup(leader, SIGTERM, NEVER);
  expect([child.exitCode, child.signalCode]).toEqual([null, null]);
  process.kill(leader, 0);
});

test('the search ends when its caller leaves', async () => {
  const { leaf, leader, child } = await setUp((pid) => [...Array(2000).fill(process.pid), pid]);
  const leaving = new AbortController();
  const signalled = leaf.signalGroup(leader, SIGTERM, leaving.signal);
  leaving.abort(new Error('left'));
  await expect(signalled).rejects.toThrow('left');
  expect(child.signalCode).toBeNull();
});
