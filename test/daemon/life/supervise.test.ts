import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { byTag, connectTo } from '../../support/clients/clients.ts';
import { outputOf, startKept } from '../../support/clients/lasting-output.ts';
import { childrenOf, openFiles, runs } from '../../support/machine/proc.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { useImage } from '../../support/programs/image.ts';
import { startDetached } from '../../support/programs/workload.ts';
import { freePort } from '../../support/servers/free-port.ts';
import { until } from '../../support/until.ts';

/* bin/envd-supervise, the loop for guests without systemd. */

const image = useImage();
const program = () => join(image(), 'bin/envd-supervise');

async function supervised(env: Readonly<Record<string, string>> = {}): Promise<TestDaemon> {
  const ENVD_ENV_FILE = '/nowhere';
  return await startDaemon({ command: [program()], port: await freePort(), env: { ENVD_ENV_FILE, ...env } });
}

/** The daemon, which is the only child of the loop. */
const mainOf = ({ pid }: TestDaemon) => childrenOf(pid)[0] ?? -1;
const ready = ({ log }: TestDaemon) => log.filter(({ msg }) => msg === 'ready').length;

test('a daemon that was killed is started again, at the same port', async () => {
  await using daemon = await supervised();
  for (const signal of ['SIGKILL', 'SIGQUIT', 'SIGTERM'] as const) {
    const [before, main] = [ready(daemon), mainOf(daemon)];
    process.kill(main, signal);
    await until('the next daemon listens', () => ready(daemon) > before);
    expect(mainOf(daemon)).not.toBe(main);
    expect((await fetch(`${daemon.url}/health`)).status).toBe(204);
  }
});

test('SIGTERM ends the daemon, then the loop, with its exit code', async () => {
  await using daemon = await supervised();
  const main = mainOf(daemon);
  expect(await daemon.stop()).toBe(0);
  expect(runs(main)).toBe(false);
});

test('SIGUSR2 upgrades the daemon, whose processes go on', async () => {
  await using daemon = await supervised();
  const clients = connectTo(daemon.url);
  const main = mainOf(daemon);
  await startDetached(clients, { process: { cmd: '/bin/cat' }, tag: 'cat' });
  process.kill(daemon.pid, 'SIGUSR2');
  await until('the new program listens', () => ready(daemon) === 2);
  expect(mainOf(daemon)).toBe(main);
  const { processes } = await clients.process.list({});
  expect(processes.map(({ tag }) => tag)).toEqual(['cat']);
  await clients.process.closeStdin({ process: byTag('cat') });
});

test('output lasts without a flag', async () => {
  await using daemon = await supervised();
  const pid = await startKept(daemon.url, 'echo kept; exit 3');
  expect(await (await outputOf(daemon.url, pid, '?follow=true')).text()).toBe('kept\n');
  expect(openFiles(mainOf(daemon)).filter((file) => file.startsWith('/var/tmp/'))).toHaveLength(1);
});

test('a wrong setting ends the loop with exit code 2', () => {
  const { status, stderr } = spawnSync(program(), ['--port=none'], { encoding: 'utf8', env: {} });
  expect([status, stderr]).toEqual([2, expect.stringContaining('the daemon is not started again')]);
});

test('variables come from the file of the unit, whose other lines are named', async () => {
  const file = join(scratch(), 'envd.env');
  const lines = [
    '# a comment',
    'ENVD_REQUIRE_TOKEN="1"',
    "ENVD_LOG_LEVEL='debug'",
    'no sign',
    '1X=2',
    'A=$(exit 3) ; `x`',
  ];
  writeFileSync(file, lines.join('\n'));
  await using daemon = await supervised({ ENVD_ENV_FILE: file });
  expect((await fetch(`${daemon.url}/envs`)).status).toBe(401);
  const environment = readFileSync(`/proc/${mainOf(daemon)}/environ`, 'utf8').split('\0');
  expect(environment).toEqual(expect.arrayContaining(['A=$(exit 3) ; `x`', 'ENVD_LOG_LEVEL=debug']));
  const { stderr } = spawnSync(program(), ['--port=none'], {
    encoding: 'utf8',
    env: { ENVD_ENV_FILE: file },
  });
  expect(stderr).toContain(`'${file}' has a line without '='`);
  expect(stderr).toContain(`'${file}' sets '1X', which is no name of a variable`);
});

test('a command gets the log where an init would drop it', async () => {
  const file = join(scratch(), 'log');
  await using daemon = await supervised({ ENVD_SUPERVISE_LOGGER: `tee ${file}` });
  await until('the log is in the file', () => readFileSync(file, 'utf8').includes('"msg":"ready"'));
  expect(await daemon.stop()).toBe(0);
});
