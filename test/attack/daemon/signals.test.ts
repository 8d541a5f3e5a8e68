import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { byTag, connectTo } from '../../support/clients/clients.ts';
import { runs } from '../../support/machine/proc.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { useImage } from '../../support/programs/image.ts';
import { startDetached } from '../../support/programs/workload.ts';
import { until } from '../../support/until.ts';

/* A signal that arrives at any moment of a start, an upgrade or a stop does what it says, or nothing. */

const image = useImage();
const start = () => startDaemon({ command: [join(image(), 'bin/envd')] });
const readies = ({ log }: TestDaemon) => log.filter(({ msg }) => msg === 'ready').length;

/** Sends SIGUSR2 again and again, at all moments until `isOver`. */
async function bombard({ pid, exited }: TestDaemon, isOver: () => boolean): Promise<void> {
  let hasExited = false;
  void exited.then(() => {
    hasExited = true;
  });
  while (!isOver() && !hasExited) {
    try {
      process.kill(pid, 'SIGUSR2');
    } catch {
      return; // It has ended, which is told a little later.
    }
    await delay(1);
  }
}

/** Waits until the daemon has become another program, which does not listen yet. */
async function whenReplaced({ pid }: TestDaemon): Promise<void> {
  const environment = () => readFileSync(`/proc/${pid}/environ`, 'latin1');
  await until('the program is replaced', () => environment().includes('ENVD_HANDOVER='));
}

test('SIGUSR2 at any moment of a start ends nothing', async () => {
  const flag = join(scratch(), 'started');
  const script = `trap '' USR2; (until [ -e "$1" ]; do kill -USR2 $$; sleep 0.002; done) & shift; exec "$@"`;
  await using daemon = await startDaemon({
    command: ['/bin/sh', '-c', script, 'sh', flag, join(image(), 'bin/envd')],
  });
  writeFileSync(flag, '');
  expect((await fetch(`${daemon.url}/health`)).status).toBe(204);
});

test('SIGUSR2 at any moment of an upgrade and of a stop ends nothing', async () => {
  await using daemon = await start();
  const clients = connectTo(daemon.url);
  const pid = await startDetached(clients, { process: { cmd: '/bin/cat' }, tag: 'cat' });
  for (const round of [2, 3]) {
    await bombard(daemon, () => readies(daemon) >= round);
    expect(readies(daemon)).toBeGreaterThanOrEqual(round);
    expect(runs(pid)).toBe(true);
  }
  await clients.process.closeStdin({ process: byTag('cat') });
  let isOver = false;
  void daemon.exited.then(() => {
    isOver = true;
  });
  process.kill(daemon.pid, 'SIGTERM');
  await bombard(daemon, () => isOver);
  expect(await daemon.exited).toEqual({ code: 0, signal: null });
  // At most the upgrade that was under way says that it is given up. A line for each signal would keep the daemon from its exit.
  expect(daemon.log.filter(({ reason }) => reason === 'the daemon is stopping').length).toBeLessThan(2);
});

test('a stop does not wait for the trial of the next program', async () => {
  const program = join(scratch(), 'envd');
  await using daemon = await startDaemon({
    command: [join(image(), 'bin/envd')],
    args: [`--program=${program}`, '--upgrade-timeout=60'],
  });
  writeFileSync(program, '#!/bin/sh\necho $$ > "$0.pid"\nexec sleep 1000\n', { mode: 0o755 });
  process.kill(daemon.pid, 'SIGUSR2');
  const tried = () => (existsSync(`${program}.pid`) ? Number(readFileSync(`${program}.pid`)) : 0);
  const pid = await until('the next program is tried', tried);
  process.kill(daemon.pid, 'SIGTERM');
  expect(await daemon.exited).toEqual({ code: 0, signal: null });
  expect(runs(pid)).toBe(false);
});

/** Waits until that program has begun its script, which does not act on signals yet. */
async function whenBegun(daemon: TestDaemon): Promise<void> {
  await whenReplaced(daemon);
  const name = () => readFileSync(`/proc/${daemon.pid}/comm`, 'latin1').trim();
  await until('its script runs', () => name() === 'envd');
}

const MOMENTS = [
  ['at the beginning', whenReplaced],
  ['during the start', whenBegun],
] as const;
const STOPS = ['SIGTERM', 'SIGINT', 'SIGHUP'] as const;

test.each(STOPS.flatMap((signal) => MOMENTS.map((moment) => [signal, ...moment] as const)))(
  '%s %s of the next program stops the daemon in order',
  async (signal, _moment, reached) => {
    await using daemon = await start();
    const pid = await startDetached(connectTo(daemon.url), { process: { cmd: '/bin/cat' } });
    process.kill(daemon.pid, 'SIGUSR2');
    await reached(daemon);
    process.kill(daemon.pid, signal);
    expect(await daemon.exited).toEqual({ code: 0, signal: null });
    expect(runs(pid)).toBe(false);
  },
);
