import { Code } from '@connectrpc/connect';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { SignalScope } from '../../../src/gen/process/process_pb.js';
import { byPid, type Clients, connectTo } from '../../support/clients/clients.ts';
import { testCgroup } from '../../support/machine/cgroups.ts';
import { needs } from '../../support/machine/needs.ts';
import { runs } from '../../support/machine/proc.ts';
import { type Supervised, startSupervised } from '../../support/programs/supervised.ts';
import { bash } from '../../support/programs/workload.ts';
import { until } from '../../support/until.ts';

/* A process of root that moves itself out of its cgroup is ended all the same, also by a daemon that has not started it. */

let supervised: Supervised;
let clients: Clients;
beforeAll(async () => {
  needs('cgroup v2');
  supervised = await startSupervised();
  clients = connectTo(supervised.daemon.url);
});
afterAll(async () => {
  await supervised?.[Symbol.asyncDispose]();
});

const ROOT = { authorization: `Basic ${Buffer.from('root:').toString('base64')}` };

/** Starts a process that has left its cgroup; returns its pid and its stream, which has told that. */
async function startLeaving(timeoutMs?: number) {
  const refuge = testCgroup();
  onTestFinished(() => refuge[Symbol.dispose]());
  const script = `echo $$ >'${refuge.path}/cgroup.procs'; exec sleep 1000`;
  const options = { headers: ROOT, ...(timeoutMs !== undefined && { timeoutMs }) };
  const events = clients.process.start({ process: bash(script) }, options)[Symbol.asyncIterator]();
  const { value } = await events.next();
  const pid = value?.event?.event.case === 'start' ? value.event.event.value.pid : 0;
  await until('it has left its cgroup', () => refuge.processes().includes(pid));
  return { pid, next: () => events.next() };
}

const stop = (pid: number, graceMs: number) =>
  fetch(`${supervised.daemon.url}/processes/${pid}/stop`, {
    method: 'POST',
    body: JSON.stringify({ graceMs }),
  });

test('a deadline kills it', async () => {
  const { pid, next } = await startLeaving(3000);
  await expect(next()).rejects.toMatchObject({ code: Code.DeadlineExceeded });
  await until('it has ended', () => !runs(pid));
});

test.each([60_000, 0])('a stop ends it, with a grace of %i ms', async (graceMs) => {
  const { pid } = await startLeaving();
  expect((await stop(pid, graceMs)).status).toBe(200);
  expect(runs(pid)).toBe(false);
});

test('signals and stops reach it after a crash', async () => {
  const all = [await startLeaving(), await startLeaving(), await startLeaving(), await startLeaving()];
  for (const { next } of all) next().catch(() => {});
  const [one, group, tree, killed] = all.map(({ pid }) => pid) as [number, number, number, number];
  await supervised.crash();
  await clients.process.sendSignal({ process: byPid(group), signal: 15 });
  await clients.process.sendSignal({ process: byPid(tree), signal: 15, scope: SignalScope.TREE });
  await clients.process.sendSignal({ process: byPid(killed), signal: 9, scope: SignalScope.TREE });
  expect((await stop(one, 60_000)).status).toBe(200);
  await until('all have ended', () => !all.some(({ pid }) => runs(pid)));
});
