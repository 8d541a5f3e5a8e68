import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync, rmdirSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { expect, onTestFinished, test } from 'vitest';
import { connectTo, transcribe } from '../../support/clients/clients.ts';
import { needs } from '../../support/machine/needs.ts';
import { childrenOf, runs, starterOf } from '../../support/machine/proc.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { startDaemon } from '../../support/programs/daemon.ts';
import type { LogLine } from '../../support/programs/log-lines.ts';
import { daemonCommand } from '../../support/programs/programs.ts';
import { startDetached } from '../../support/programs/workload.ts';
import { until } from '../../support/until.ts';

// Node has no datagram sockets of the Unix family.
const LISTENER = `
import socket, sys
manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
manager.bind(sys.argv[1].replace('@', '\\0', 1))
print('listening', flush=True)
while True:
    text = manager.recv(4096).decode()
    if '=' in text and not text.startswith('FD'): print(text, flush=True)
`;

/** A service manager that listens on `address`; yields each message. */
async function serviceManager(address: string): Promise<AsyncIterator<string>> {
  needs('python3');
  const listener = spawn('python3', ['-c', LISTENER, address], { stdio: ['ignore', 'pipe', 'inherit'] });
  onTestFinished(() => void listener.kill());
  const lines = createInterface({ input: listener.stdout })[Symbol.asyncIterator]();
  expect(await lines.next()).toMatchObject({ value: 'listening' });
  return lines;
}

test.each([
  ['a path', () => join(scratch(), 'notify')],
  ['an abstract name', () => `@envd-test-${process.pid}`],
])('systemd is notified at %s of readiness and stop', async (_kind, address) => {
  const socket = address();
  const manager = await serviceManager(socket);
  await using daemon = await startDaemon({ env: { NOTIFY_SOCKET: socket } });
  expect(await manager.next()).toMatchObject({ value: 'READY=1' });
  expect((await fetch(`${daemon.url}/health`)).status).toBe(204);
  expect(await daemon.stop()).toBe(0);
  expect(await manager.next()).toMatchObject({ value: 'STOPPING=1' });
});

test('an unreachable notify socket is logged, and the daemon runs', async () => {
  await using daemon = await startDaemon({ env: { NOTIFY_SOCKET: join(scratch(), 'nobody') } });
  expect((await fetch(`${daemon.url}/health`)).status).toBe(204);
  const isTold = ({ msg }: LogLine) => msg === 'cannot notify the service manager';
  expect(await until('it is logged', () => daemon.log.find(isTold))).toMatchObject({ level: 40 });
});

test.each([
  ['SIGQUIT', true],
  ['SIGTERM', false],
] as const)('after %s processes still run: %s', async (signal, left) => {
  await using daemon = await startDaemon();
  const client = connectTo(daemon.url).process;
  const stream = client.start({ process: { cmd: 'sleep', args: ['60'] } })[Symbol.asyncIterator]();
  const first = await stream.next();
  const pid = first.value?.event?.event.case === 'start' ? first.value.event.event.value.pid : 0;
  const ended = stream.next().catch((error: Error) => error);
  expect(await daemon.stop(signal)).toBe(0);
  await ended;
  expect(runs(pid)).toBe(left);
  if (!left) return;
  process.kill(pid, 'SIGKILL');
  await expect.poll(() => runs(pid)).toBe(false);
  await expect.poll(() => removeLeaves(`${daemon.cgroupRoot}/user`)).toBe(true);
});

test('a start that fails after SIGQUIT does not fail the stop', async () => {
  // More than the first start on a busy machine needs, and less than a stop.
  await using daemon = await startDaemon({ args: ['--start-timeout=4'] });
  const clients = connectTo(daemon.url);
  await transcribe(clients.process.start({ process: { cmd: 'true' } }));
  const starter = await until('there is a starter', () => starterOf(daemon.pid));
  process.kill(starter, 'SIGSTOP');
  onTestFinished(() => void process.kill(starter, 'SIGKILL'));
  const failed = startDetached(clients, { process: { cmd: 'true' }, startId: randomUUID() }).catch(
    (error: Error) => error,
  );
  const streams = async () =>
    (await fetch(`${daemon.url}/metrics`, { headers: { accept: 'text/plain' } })).text();
  await expect.poll(streams).toContain('envd_streams 1');
  expect(await daemon.stop('SIGQUIT')).toBe(0);
  expect(await failed).toBeInstanceOf(Error);
  expect(daemon.log.filter(({ level }) => level >= 50)).toEqual([]);
});

/** Starts the daemon's only process; returns its pid. */
async function startCommand(url: string, command: string): Promise<number> {
  const stream = connectTo(url).process.start({ process: { cmd: 'bash', args: ['-c', command] } });
  const events = stream[Symbol.asyncIterator]();
  const { value } = await events.next();
  // The stream ends with the daemon.
  events.next().catch(() => {});
  return value?.event?.event.case === 'start' ? value.event.event.value.pid : 0;
}

test('a second signal shortens the stop, and still ends all processes', async () => {
  needs('cgroup v2');
  await using daemon = await startDaemon();
  const pid = await startCommand(daemon.url, 'trap "" TERM; setsid sleep 300 & sleep 300 & wait');
  await expect.poll(() => childrenOf(pid).length).toBe(2);
  const all = [pid, ...childrenOf(pid)];
  process.kill(daemon.pid, 'SIGTERM');
  await expect.poll(() => daemon.log.some(({ msg }) => msg === 'stopping')).toBe(true);
  expect(await daemon.stop('SIGTERM')).toBe(1);
  await expect.poll(() => all.filter(runs)).toEqual([]);
  await expect.poll(() => removeLeaves(`${daemon.cgroupRoot}/user`)).toBe(true);
});

test('processes outlive a killed daemon; the next one removes empty cgroups, and its stop ends the processes', async () => {
  needs('cgroup v2');
  await using daemon = await startDaemon();
  const pids = [await startCommand(daemon.url, 'sleep 300'), await startCommand(daemon.url, 'sleep 300')];
  expect(await daemon.stop('SIGKILL')).toBe(null);
  expect(pids.filter(runs)).toEqual(pids);
  process.kill(pids[0] ?? 0, 'SIGKILL');
  await expect.poll(() => pids.filter(runs)).toEqual([pids[1]]);
  await using next = await startDaemon({ args: [`--cgroup-root=${daemon.cgroupRoot}`] });
  expect((await connectTo(next.url).process.list({})).processes).toEqual([]);
  const leaves = readdirSync(`${daemon.cgroupRoot}/user`, { withFileTypes: true });
  expect(leaves.filter((entry) => entry.isDirectory())).toHaveLength(1);
  expect(await next.stop()).toBe(0);
  expect(pids.filter(runs)).toEqual([]);
  expect(existsSync(`${daemon.cgroupRoot}/user`)).toBe(false);
});

test('removed cgroups are made again for a start, and a stop works without them', async () => {
  needs('cgroup v2');
  await using daemon = await startDaemon();
  for (const name of ['user', 'ptys']) rmdirSync(`${daemon.cgroupRoot}/${name}`);
  const pid = await startCommand(daemon.url, 'sleep 300');
  expect(readFileSync(`/proc/${pid}/cgroup`, 'utf8')).toMatch(/\/user\/\d+-\d+$/m);
  expect(await daemon.stop()).toBe(0);
  expect(runs(pid)).toBe(false);
});

test('a stop ends processes whose parent has ended', async () => {
  needs('cgroup v2');
  await using daemon = await startDaemon();
  const pid = await startCommand(
    daemon.url,
    'setsid bash -c "trap : TERM; sleep 300 & wait; exec sleep 300" & sleep 300',
  );
  await expect.poll(() => childrenOf(pid).length).toBe(2);
  const children = childrenOf(pid);
  process.kill(pid, 'SIGKILL');
  await expect.poll(() => runs(pid)).toBe(false);
  expect(await daemon.stop()).toBe(0);
  expect(children.filter(runs)).toEqual([]);
  expect(existsSync(`${daemon.cgroupRoot}/user`)).toBe(false);
});

/** Removes the cgroups of processes that outlived their daemon; false while one is not empty. */
function removeLeaves(parent: string): boolean {
  if (!existsSync(parent)) return true;
  try {
    for (const { name } of readdirSync(parent, { withFileTypes: true }).filter((entry) =>
      entry.isDirectory(),
    )) {
      rmdirSync(join(parent, name));
    }
    return true;
  } catch {
    return false;
  }
}

test('a log that is not read blocks nothing', async () => {
  const directory = scratch();
  const [program, ...before] = daemonCommand();
  const args = [...before, '--host=127.0.0.1', '--port=0', '--no-cgroups', '--log-level=debug'];
  const daemon = spawn(program, [...args, `--runtime-directory=${directory}`], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { PATH: process.env.PATH },
  });
  onTestFinished(() => void daemon.kill('SIGKILL'));
  const port = await portOf(daemon.stdout);
  // Far more than the pipe and the buffers on both sides hold.
  const statuses = new Set<number>();
  const ask = async () => statuses.add((await fetch(`http://127.0.0.1:${port}/health`)).status);
  for (let round = 0; round < 500; round++) await Promise.all(Array.from({ length: 20 }, ask));
  expect([...statuses]).toEqual([204]);
});

/** Reads no further than the line with the port. */
async function portOf(log: Readable): Promise<number> {
  let text = '';
  for (;;) {
    const port = /"port":(\d+)/.exec(text)?.[1];
    if (port) return Number(port);
    await once(log, 'readable');
    text += log.read() ?? '';
  }
}
