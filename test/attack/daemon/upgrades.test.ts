import { readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { connectTo } from '../../support/clients/clients.ts';
import { needs } from '../../support/machine/needs.ts';
import { kindsOfOpenFiles } from '../../support/machine/proc.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { Workload } from '../../support/programs/workload.ts';
import { until } from '../../support/until.ts';

/** Upgrades at random moments: ENVD_UPGRADES=50 for many, with 20 processes of each kind. */
const UPGRADES = Number(process.env.ENVD_UPGRADES ?? 3);
const EACH = UPGRADES > 10 ? 20 : 6;
async function upgrade(daemon: TestDaemon): Promise<void> {
  const ready = () => daemon.log.filter(({ msg }) => msg === 'ready').length;
  const before = ready();
  const answer = await fetch(`${daemon.url}/upgrade`, { method: 'POST' });
  expect([answer.status, await answer.text()]).toEqual([202, '']);
  await until('the new program listens', () => ready() > before);
}

test(`${5 * EACH} processes lose nothing in ${UPGRADES} upgrades at random moments`, async () => {
  needs('root');
  await using daemon = await startDaemon({ args: ['--history-bytes=4000000'] });
  const clients = connectTo(daemon.url, 'binary');
  const idle = kindsOfOpenFiles(daemon.pid);
  const workload = await Workload.start(clients, { each: EACH, burst: 50_000 });
  for (let round = 0; round < UPGRADES; round++) {
    await workload.say();
    await delay(Math.random() * 300);
    await upgrade(daemon);
  }
  await workload.finish(true);

  await upgrade(daemon);
  expect(kindsOfOpenFiles(daemon.pid)).toEqual(idle);
  const children = readFileSync(`/proc/${daemon.pid}/task/${daemon.pid}/children`, 'utf8').trim();
  expect(children).toBe('');
}, 600_000);
