import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { byPid, connectTo, transcribe } from '../../support/clients/clients.ts';
import { needs } from '../../support/machine/needs.ts';
import { runs } from '../../support/machine/proc.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { startDaemon } from '../../support/programs/daemon.ts';
import { DAEMON_PROGRAM } from '../../support/programs/programs.ts';
import { startSupervised } from '../../support/programs/supervised.ts';
import { bash, follow, input, startDetached } from '../../support/programs/workload.ts';
import { until } from '../../support/until.ts';

/** It writes when it runs, and ends at SIGKILL only. */
const STUBBORN = bash('trap "" TERM; echo on; while :; do read -t 0.01 x; done');

test.each(['upgrade', 'crash'] as const)(
  'what is frozen stays frozen over an %s until /init',
  async (how) => {
    needs('cgroup v2');
    await using supervised = await startSupervised();
    const { daemon } = supervised;
    const clients = connectTo(daemon.url, 'binary');
    const post = (path: string) => fetch(daemon.url + path, { method: 'POST' });
    const echo = follow(
      clients,
      await startDetached(clients, { process: bash('while read x; do echo "<$x>"; done') }),
    );
    expect((await post('/freeze?maxWaitMs=5000')).status).toBe(200);
    const isFrozen = () =>
      readFileSync(`${daemon.cgroupRoot}/user/cgroup.events`, 'utf8').includes('frozen 1');
    const told = async () => {
      const health = await fetch(`${daemon.url}/health?verbose`);
      return ((await health.json()) as { frozen: object }).frozen;
    };
    expect(isFrozen()).toBe(true);
    await supervised[how]();
    expect([isFrozen(), await told()]).toEqual([true, { workload: true, filesystem: false }]);
    await clients.process.sendInput({ process: byPid(echo.pid), input: input('stdin', 'one\n') });
    const refused = transcribe(clients.process.start({ process: bash('true') }));
    await expect(refused).rejects.toThrow('the workload is frozen');
    expect((await post('/init')).status).toBe(204);
    await until('it goes on', () => Buffer.concat(echo.following.parts.stdout).toString() === '<one>\n');
    expect([isFrozen(), await told()]).toEqual([false, { workload: false, filesystem: false }]);
    await clients.process.closeStdin({ process: byPid(echo.pid) });
    await echo.end;
  },
);

test('a program that ends after execve, before it listens, loses nothing', async () => {
  const program = join(scratch(), 'envd');
  const trial = `case "$*" in *--try-upgrade*) exec '${process.execPath}' '${DAEMON_PROGRAM}' "$@";; esac`;
  writeFileSync(program, `#!/bin/sh\n${trial}\nexit 1\n`, { mode: 0o755 });
  await using supervised = await startSupervised({ args: [`--program=${program}`] });
  const clients = connectTo(supervised.daemon.url, 'binary');
  // More than the pipe holds: the rest is accepted, and not written when the daemon is replaced.
  const text = 'x'.repeat(300_000);
  const gate = join(scratch(), 'gate');
  const script = `until [ -e ${gate} ]; do sleep 0.01; done; cat; exit 8`;
  const pid = await startDetached(clients, { process: bash(script) });
  const { following, end } = follow(clients, pid);
  await clients.process.sendInput({ process: byPid(pid), input: input('stdin', text) });
  await supervised.upgrade();
  expect(supervised.stored().length).toBeGreaterThan(0);
  writeFileSync(gate, '');
  await clients.process.closeStdin({ process: byPid(pid) });
  await end;
  expect(Buffer.concat(following.parts.stdout).toString()).toBe(text);
});

test('a daemon that stops is not upgraded', async () => {
  needs('cgroup v2');
  await using daemon = await startDaemon();
  const clients = connectTo(daemon.url, 'binary');
  const { pid, following, end } = follow(clients, await startDetached(clients, { process: STUBBORN }));
  end.catch(() => {});
  await until('it runs', () => following.parts.stdout[0]);
  process.kill(daemon.pid, 'SIGTERM');
  await until('the daemon stops', () => daemon.log.some(({ msg }) => msg === 'stopping'));
  const answer = await fetch(`${daemon.url}/upgrade`, { method: 'POST' });
  expect([answer.status, await answer.text()]).toEqual([
    503,
    expect.stringContaining('the daemon is stopping'),
  ]);
  expect(await daemon.exited).toEqual({ code: 0, signal: null });
  expect(runs(pid)).toBe(false);
});

test('a daemon that is told to stop while it is replaced stops, and the processes that write end', async () => {
  needs('cgroup v2');
  await using daemon = await startDaemon();
  const clients = connectTo(daemon.url, 'binary');
  const { pid, following, end } = follow(clients, await startDetached(clients, { process: STUBBORN }));
  end.catch(() => {});
  await until('it runs', () => following.parts.stdout[0]);
  // It fills its pipe whenever that is not read.
  const writer = await startDetached(clients, { process: { cmd: 'yes' } });
  // A request under way, for whose end an upgrade waits a moment.
  const socket = connect(daemon.port, '127.0.0.1');
  socket.on('error', () => {});
  socket.write('POST /files?path=/tmp/never HTTP/1.1\r\nhost: test\r\ncontent-length: 5\r\n\r\n.');
  const answer = await fetch(`${daemon.url}/upgrade`, { method: 'POST' });
  expect(answer.status).toBe(202);
  await until('it is replaced', () => daemon.log.some(({ msg }) => msg === 'upgrading'));
  process.kill(daemon.pid, 'SIGTERM');
  expect(await daemon.exited).toEqual({ code: 0, signal: null });
  socket.destroy();
  expect([runs(pid), runs(writer)]).toEqual([false, false]);
  expect(daemon.log.filter(({ msg }) => msg === 'ready')).toHaveLength(1);
});

test('each upgrade is in the log, however soon the next program begins', async () => {
  await using daemon = await startDaemon();
  const count = (wanted: string) => daemon.log.filter(({ msg }) => msg === wanted).length;
  for (const times of [1, 2, 3, 4, 5]) {
    await fetch(`${daemon.url}/upgrade`, { method: 'POST' });
    await until('the next program listens', () => count('ready') === times + 1);
    expect(count('upgrading')).toBe(times);
  }
});

test('an upgrade for which no descriptor is free is refused, and everything goes on', async () => {
  needs('root');
  const limit = 160;
  await using daemon = await startDaemon({
    command: ['prlimit', `--nofile=${limit}:${limit}`, process.execPath, DAEMON_PROGRAM],
  });
  const clients = connectTo(daemon.url, 'binary');
  const echo = follow(
    clients,
    await startDetached(clients, { process: bash('while read x; do echo "<$x>"; done') }),
  );
  const open = () => readdirSync(`/proc/${daemon.pid}/fd`).length;
  while (open() < 0.75 * limit) await startDetached(clients, { process: { cmd: 'cat' } });
  const answer = await fetch(`${daemon.url}/upgrade`, { method: 'POST' });
  expect([answer.status, await answer.text()]).toEqual([
    429,
    expect.stringContaining('cannot hand over: EMFILE'),
  ]);
  expect(open()).toBeLessThan(limit);
  await clients.process.sendInput({ process: byPid(echo.pid), input: input('stdin', 'on\n') });
  await until('it goes on', () => Buffer.concat(echo.following.parts.stdout).toString() === '<on>\n');
  expect(daemon.log.filter(({ msg }) => msg === 'upgrading')).toEqual([]);
});

test('an upgrade whose state is too large is refused, and everything goes on', async () => {
  needs('root');
  await using daemon = await startDaemon();
  const clients = connectTo(daemon.url, 'binary');
  // Each has almost 2 MiB of input that it does not read, which is the most.
  const texts = [1024 * 1024 - 1, 1024 * 1024].map((size) => Buffer.alloc(size, 'x'));
  const pids: number[] = [];
  for (let made = 0; made < 110; made += 1) {
    const pid = await startDetached(clients, { process: { cmd: 'sleep', args: ['1000'] } });
    pids.push(pid);
    for (const value of texts)
      await clients.process.sendInput({
        process: byPid(pid),
        input: { input: { case: 'stdin', value } },
      });
  }
  const answer = await fetch(`${daemon.url}/upgrade`, { method: 'POST' });
  expect([answer.status, await answer.text()]).toEqual([
    429,
    expect.stringContaining('cannot hand over: the state has more than 268435456 bytes'),
  ]);
  const { processes } = await clients.process.list({});
  expect(processes.map(({ pid }) => pid).sort()).toEqual(pids.sort());
});

test('the CPU time of a process is told after a crash, too', async () => {
  needs('cgroup v2');
  await using supervised = await startSupervised();
  const clients = connectTo(supervised.daemon.url, 'binary');
  const pid = await startDetached(clients, {
    process: bash('for ((i = 0; i < 100000; i++)); do :; done; echo on; read x'),
  });
  const { following, end } = follow(clients, pid);
  await until('it has worked', () => following.parts.stdout[0]);
  await supervised.crash();
  await clients.process.closeStdin({ process: byPid(pid) });
  const { usage } = await end;
  expect(Number(usage?.userMicros)).toBeGreaterThan(1000);
});

test('records that cannot be kept are counted', async () => {
  const count = async (url: string) => {
    const page = await fetch(`${url}/metrics`, { headers: { accept: 'text/plain' } });
    return Number(/^envd_record_failures_total (\S+)$/m.exec(await page.text())?.[1]);
  };
  await using daemon = await startDaemon({ env: { NOTIFY_SOCKET: join(scratch(), 'nobody') } });
  expect(await count(daemon.url)).toBeGreaterThan(0);
  await using without = await startDaemon();
  expect(await count(without.url)).toBe(0);
});
