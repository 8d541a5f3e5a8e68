import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { connectTo } from '../../support/clients/clients.ts';
import { uploadRaw } from '../../support/clients/files-client.ts';
import { needs } from '../../support/machine/needs.ts';
import { kindsOfOpenFiles } from '../../support/machine/proc.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { isWaiting, stuckCall } from '../../support/machine/stuck-call.ts';
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
  await expect.poll(() => kindsOfOpenFiles(daemon.pid)).toEqual(idle);
  const children = () => readFileSync(`/proc/${daemon.pid}/task/${daemon.pid}/children`, 'utf8').trim();
  await expect.poll(children).toBe('');
}, 600_000);

test('an upgrade is refused while a call waits for a directory that is locked', async () => {
  needs('fuse');
  await using daemon = await startDaemon();
  const directory = scratch();
  const release = await stuckCall(
    `directory = os.open("${directory}", os.O_RDONLY)
SYS_getdents64 = {'x86_64': 217, 'aarch64': 61}[os.uname().machine]`,
    'libc.syscall(SYS_getdents64, directory, ctypes.c_void_p(page), 65536)',
  );
  await using _ = { [Symbol.asyncDispose]: release };
  const upload = uploadRaw(daemon, join(directory, 'file'), 'x');
  const tasks = `/proc/${daemon.pid}/task`;
  await until('it waits', () => readdirSync(tasks).some((task) => isWaiting(join(tasks, task))));
  const answer = await fetch(`${daemon.url}/upgrade`, { method: 'POST' });
  expect([answer.status, await answer.json()]).toEqual([
    503,
    expect.objectContaining({ message: expect.stringContaining('hangs') }),
  ]);
  expect((await fetch(`${daemon.url}/health`)).status).toBe(204);
  await release();
  expect((await upload).status).toBe(200);
  await upgrade(daemon);
});
