import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, readlinkSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { release } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { needs } from '../../support/machine/needs.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { daemonCommand } from '../../support/programs/programs.ts';
import { until } from '../../support/until.ts';

/* A client that is gone acknowledges nothing. One that lives and reads nothing acknowledges the probes of its closed window. */

const SIZE = 256 * 1024 * 1024;
const [SERVER, SERVER6] = ['10.77.0.1', 'fd77::1'];
const [PAUSED, PAUSED_GONE, MAPPED_GONE, GONE6] = ['10.77.0.2', '10.77.0.3', '10.77.0.4', 'fd77::2'];
/** What the kernel calls the timer of probes for a closed window. Source: proc_pid_net(5). */
const PROBE_TIMER = / 04:([\dA-F]{8}) /g;

/** Starts a process with a network of its own. */
async function network(): Promise<number> {
  const holder = spawn('unshare', ['--net', 'sleep', 'infinity'], { stdio: 'ignore' });
  onTestFinished(() => void holder.kill());
  await once(holder, 'spawn');
  const own = readlinkSync('/proc/self/ns/net');
  await until('the network is there', () => readlinkSync(`/proc/${holder.pid}/ns/net`) !== own);
  return holder.pid ?? -1;
}

const within = (pid: number) => ['nsenter', '-t', `${pid}`, '-n'] as const;
const sh = (pid: number, script: string) =>
  execFileSync('nsenter', [...within(pid).slice(1), 'sh', '-ec', script]);

function download(pid: number, url: string, address: string, to: string, ...flags: string[]): ChildProcess {
  const args = ['curl', '-s', '--interface', address, '-o', to, ...flags, url];
  const child = spawn('nsenter', [...within(pid).slice(1), ...args]);
  onTestFinished(() => void child.kill('SIGKILL'));
  return child;
}

test('a download of a client that pauses goes on when those of clients that are gone have ended', async () => {
  needs('root');
  const [server, clients] = [await network(), await network()];
  sh(
    server,
    `ip link set lo up; ip link add d0 type veth peer name c0 netns ${clients}; ip link set d0 up
     ip address add ${SERVER}/24 dev d0; ip address add ${SERVER6}/64 dev d0 nodad`,
  );
  for (const one of [PAUSED, PAUSED_GONE, MAPPED_GONE]) sh(clients, `ip address add ${one}/24 dev c0`);
  sh(clients, `ip link set c0 up; ip address add ${GONE6}/64 dev c0 nodad`);
  const start = (host: string) =>
    startDaemon({
      command: ['nsenter', ...within(server).slice(1), ...daemonCommand()],
      args: [`--host=${host}`],
    });
  await using daemon = await start(SERVER);
  await using dual = await start('::');
  const file = join(daemon.scratch, 'file');
  writeFileSync(file, '');
  truncateSync(file, SIZE);
  const url = (host: string, { port }: TestDaemon) => `http://${host}:${port}/files?path=${file}`;
  const directory = scratch();
  const to = (name: string) => join(directory, name);
  const bytesArrive = (name: string) =>
    until('bytes arrive', () => existsSync(to(name)) && statSync(to(name)).size > 0);

  const paused = download(clients, url(SERVER, daemon), PAUSED, to('paused'));
  const gone = download(clients, url(SERVER, daemon), PAUSED_GONE, to('gone'));
  await bytesArrive('paused');
  paused.kill('SIGSTOP');
  await bytesArrive('gone');
  gone.kill('SIGSTOP');
  const probed = () => readFileSync(`/proc/${server}/net/tcp`, 'utf8').match(PROBE_TIMER)?.length;
  await until('both windows are closed', () => probed() === 2);
  /** The kernel's unit is a hundredth of a second. */
  const untilProbeMs = () =>
    Math.max(
      ...Array.from(
        readFileSync(`/proc/${server}/net/tcp`, 'utf8').matchAll(PROBE_TIMER),
        ([, when = '']) => Number.parseInt(when, 16) * 10,
      ),
    );
  download(clients, url(SERVER, dual), MAPPED_GONE, to('mapped'), '--limit-rate', '1M');
  download(clients, url(`[${SERVER6}]`, dual), GONE6, to('gone6'), '--limit-rate', '1M');
  for (const name of ['mapped', 'gone6']) await bytesArrive(name);
  let longestMs = 0;
  const ended = () => {
    longestMs = Math.max(longestMs, untilProbeMs());
    return [daemon, dual].map(
      ({ log }) => log.filter((line) => JSON.stringify(line).includes('/files')).length,
    );
  };
  const left = [PAUSED_GONE, MAPPED_GONE, GONE6];
  for (const one of left) sh(clients, `ip address del ${one}/${one === GONE6 ? 64 : 24} dev c0`);
  await until('the clients that left are noticed', () => `${ended()}` === '1,2', Boolean, 90_000);

  // Since Linux 6.15, a client that has paused for long is probed as often as one that has just begun to.
  const [major = 0, minor = 0] = release().split('.').map(Number);
  if (major > 6 || (major === 6 && minor >= 15)) expect(longestMs).toBeLessThanOrEqual(10_000);
  paused.kill('SIGCONT');
  expect(await once(paused, 'exit')).toEqual([0, null]);
  expect(statSync(to('paused')).size).toBe(SIZE);
}, 180_000);
