import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, readlinkSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { needs } from '../../support/machine/needs.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { startDaemon } from '../../support/programs/daemon.ts';
import { daemonCommand } from '../../support/programs/programs.ts';
import { until } from '../../support/until.ts';

/* A client that is gone acknowledges nothing. One that lives and reads nothing acknowledges the probes of its closed window. */

const SIZE = 256 * 1024 * 1024;
const SERVER = '10.77.0.1';
const [PAUSED, GONE_PAUSED, GONE_READING] = ['10.77.0.2', '10.77.0.3', '10.77.0.4'];
/** What the kernel calls the timer of probes for a closed window. Source: proc_pid_net(5). */
const PROBE_TIMER = / 04:[\dA-F]{8} /g;

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
    `ip link set lo up; ip link add d0 type veth peer name c0 netns ${clients}; ip address add ${SERVER}/24 dev d0
     ip link set d0 up; echo 5 >/proc/sys/net/ipv4/tcp_retries2`,
  );
  sh(clients, [PAUSED, GONE_PAUSED, GONE_READING].map((one) => `ip address add ${one}/24 dev c0`).join('\n'));
  sh(clients, 'ip link set c0 up');
  await using daemon = await startDaemon({
    command: ['nsenter', ...within(server).slice(1), ...daemonCommand()],
    args: [`--host=${SERVER}`],
  });
  const file = join(daemon.scratch, 'file');
  writeFileSync(file, '');
  truncateSync(file, SIZE);
  const url = `http://${SERVER}:${daemon.port}/files?path=${file}`;
  const directory = scratch();
  const to = (name: string) => join(directory, name);
  const has = (name: string) => existsSync(to(name)) && statSync(to(name)).size > 0;

  const paused = download(clients, url, PAUSED, to('paused'));
  const gone = download(clients, url, GONE_PAUSED, to('gone'));
  for (const [child, name] of [
    [paused, 'paused'],
    [gone, 'gone'],
  ] as const) {
    await until('bytes arrive', () => has(name));
    child.kill('SIGSTOP');
  }
  const probed = () => readFileSync(`/proc/${server}/net/tcp`, 'utf8').match(PROBE_TIMER)?.length;
  await until('both windows are closed', () => probed() === 2);
  download(clients, url, GONE_READING, to('reading'), '--limit-rate', '1M');
  await until('bytes arrive', () => has('reading'));
  const ended = () => daemon.log.filter((line) => JSON.stringify(line).includes('/files'));
  sh(clients, `ip address del ${GONE_PAUSED}/24 dev c0; ip address del ${GONE_READING}/24 dev c0`);
  await until('the other clients are noticed', () => ended().length >= 2, Boolean, 90_000);

  paused.kill('SIGCONT');
  expect(await once(paused, 'exit')).toEqual([0, null]);
  expect(statSync(to('paused')).size).toBe(SIZE);
}, 180_000);
