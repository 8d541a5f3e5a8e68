import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { Cgroup } from '../../../src/daemon/linux/cgroups/cgroup2.ts';
import { connectTo, transcribe } from '../../support/clients/clients.ts';
import { needs } from '../../support/machine/needs.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';

const TRUE = { cmd: 'true' };

const post = (daemon: TestDaemon, path: string) => fetch(daemon.url + path, { method: 'POST' });

async function metric(daemon: TestDaemon, name: string): Promise<number> {
  const headers = { accept: 'text/plain; version=0.0.4' };
  const text = await (await fetch(`${daemon.url}/metrics`, { headers })).text();
  return Number(
    text
      .split('\n')
      .find((line) => line.startsWith(`${name} `))
      ?.slice(name.length),
  );
}

test('when a daemon is killed while frozen, the next one thaws with its first /init', async () => {
  needs('cgroup v2');
  await using first = await startDaemon();
  const cgroupRoot = String(first.cgroupRoot);
  const stream = connectTo(first.url).process.start({ process: { cmd: 'sleep', args: ['1000'] } });
  const events = stream[Symbol.asyncIterator]();
  const event = (await events.next()).value?.event?.event;
  const pid = event?.case === 'start' ? event.value.pid : 0;
  const leaf = new Cgroup(`${cgroupRoot}/user/${first.pid}-1`);
  expect((await post(first, '/freeze?maxWaitMs=5000')).status).toBe(200);
  const ended = events.next().catch(() => null);
  await first.stop('SIGKILL');
  await ended;

  const isFrozen = () => readFileSync(join(cgroupRoot, 'user/cgroup.events'), 'utf8').includes('frozen 1');
  const args = [`--cgroup-root=${cgroupRoot}`, `--runtime-directory=${first.scratch}/run`];
  await using next = await startDaemon({ args });
  expect(isFrozen()).toBe(true);
  const init = await post(next, '/init');
  expect(init.status).toBe(204);
  // Only a freeze of the hierarchy is audited.
  expect(init.headers.get('x-envd-freeze-audit')).toBeNull();
  await expect.poll(isFrozen).toBe(false);
  expect((await transcribe(connectTo(next.url).process.start({ process: TRUE }))).end?.exitCode).toBe(0);
  process.kill(pid, 'SIGKILL');
  await expect.poll(() => leaf.remove()).toBe(true);
});

test('a collapse ends when its caller disconnects, and releases the lock', async () => {
  await using daemon = await startDaemon();
  const socket = connect(daemon.port, '127.0.0.1');
  await once(socket, 'connect');
  socket.write('POST /collapse HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n', () =>
    socket.resetAndDestroy(),
  );
  const aborted = () => daemon.log.some((line) => line.operation === 'POST /collapse' && line.aborted);
  await expect.poll(aborted).toBe(true);
  expect(await metric(daemon, 'envd_pause_operations_total{operation="collapse"}')).toBe(0);
  expect((await post(daemon, '/collapse')).status).toBe(200);
  expect(await metric(daemon, 'envd_pause_operations_total{operation="collapse"}')).toBe(1);
});

test('freeze and collapse are logged when they begin, and write nothing after their response', async () => {
  await using daemon = await startDaemon();
  for (const path of ['/freeze', '/collapse', '/unfreeze', '/freeze?mode=none']) await post(daemon, path);
  const told = () =>
    daemon.log.flatMap(({ operation, msg, status }) => (operation ? [[operation, msg, status]] : []));
  await expect.poll(() => told().at(-1)).toEqual(['POST /freeze', 'operation', 400]);
  expect(told()).toEqual([
    ['POST /freeze', 'operation started', undefined],
    ['POST /collapse', 'operation started', undefined],
    ['POST /unfreeze', 'operation', 204],
    ['POST /freeze', 'operation started', undefined],
    ['POST /freeze', 'operation', 400],
  ]);
});

test('each lifecycle reseeds the random generator of the kernel, once', async () => {
  needs('root');
  await using daemon = await startDaemon({ args: ['--log-level=debug'] });
  const init = (lifecycleID: string) =>
    fetch(`${daemon.url}/init`, { method: 'POST', body: JSON.stringify({ lifecycleID }) });
  for (const lifecycle of ['a', 'a', 'b']) expect((await init(lifecycle)).status).toBe(204);
  const steps = () => daemon.log.filter(({ msg }) => /random generator/.test(msg)).map(({ msg }) => msg);
  await expect.poll(steps).toEqual(['random generator reseeded', 'random generator reseeded']);
});
