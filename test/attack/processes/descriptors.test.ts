import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { Agent, get, type IncomingMessage } from 'node:http';
import { connect } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { Code, ConnectError } from '@connectrpc/connect';
import { expect, onTestFinished, test } from 'vitest';
import { connectTo, transcribe } from '../../support/clients/clients.ts';
import { cgroupMount } from '../../support/machine/cgroups.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { daemonCommand } from '../../support/programs/programs.ts';

/*
 * A daemon that has run out of file descriptors: processes, deadlines and the stop work as usual, and calls work
 * again when descriptors are free.
 */

const setLimit = (daemon: TestDaemon, limit: number) =>
  execFileSync('prlimit', [`--pid=${daemon.pid}`, `--nofile=${limit}:`]);

/** Runs `work` while the daemon can open no descriptor. */
async function withoutDescriptors<T>(daemon: TestDaemon, work: () => Promise<T>): Promise<T> {
  setLimit(daemon, 3);
  try {
    return await work();
  } finally {
    setLimit(daemon, 1024);
  }
}

const isGone = (pid: number) => {
  try {
    return /^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return true;
  }
};

async function expectWell(daemon: TestDaemon): Promise<void> {
  expect((await fetch(`${daemon.url}/health`)).status).toBe(204);
  const process = { cmd: 'echo', args: ['hello'] };
  const { stdout } = await transcribe(connectTo(daemon.url).process.start({ process }));
  expect(stdout.toString()).toBe('hello\n');
}

/** Starts a process that does nothing; its stream is open. */
async function startSleeper(daemon: TestDaemon, timeoutMs?: number) {
  const request = { process: { cmd: 'sh', args: ['-c', 'echo up; exec sleep 300'] } };
  const options = timeoutMs === undefined ? {} : { timeoutMs };
  const started = Promise.withResolvers<number>();
  const ended = transcribe(connectTo(daemon.url).process.start(request, options), (event, { pid }) => {
    if (event.case === 'data') started.resolve(pid);
  }).catch((error: unknown) => ConnectError.from(error));
  return { pid: await started.promise, ended };
}

test('processes end without free descriptors', async () => {
  await using daemon = await startDaemon();
  const sleepers = [await startSleeper(daemon), await startSleeper(daemon)];
  const ends = await withoutDescriptors(daemon, () => {
    for (const { pid } of sleepers) process.kill(pid, 'SIGKILL');
    return Promise.all(sleepers.map(({ ended }) => ended));
  });
  for (const end of ends) expect(end).toMatchObject({ end: { status: 'signal: killed' } });
  await expectWell(daemon);
  expect((await connectTo(daemon.url).process.list({})).processes).toEqual([]);
});

test('a deadline ends its process without free descriptors', async () => {
  await using daemon = await startDaemon();
  const { pid, ended } = await startSleeper(daemon, 4000);
  await withoutDescriptors(daemon, () => expect.poll(() => isGone(pid)).toBe(true));
  expect(await ended).toMatchObject({ code: Code.DeadlineExceeded });
  await expectWell(daemon);
});

/** Replaces the files of the daemon's memory controller, which is bound to cgroup v1 on many machines. */
function withMemoryController(root: string, directory: string): string {
  const files = { 'cgroup.controllers': 'memory\n', 'cgroup.subtree_control': '-------- memory\n' };
  const commands = ['user', 'ptys'].flatMap((name) => {
    mkdirSync(join(root, name), { recursive: true });
    return Object.entries(files).map(([file, content]) => {
      const source = join(directory, `${name}.${file}`);
      writeFileSync(source, content);
      return `mount --bind '${source}' '${join(root, name, file)}'`;
    });
  });
  return [...commands, 'exec "$@"'].join(' && ');
}

test('processes with a memory controller end without free descriptors', async () => {
  const root = join(cgroupMount(), `envd-test-${process.pid}-memory`);
  onTestFinished(() => expect.poll(() => removed(root)).toBe(true));
  const script = withMemoryController(root, scratch());
  await using daemon = await startDaemon({
    command: ['unshare', '--mount', 'sh', '-c', script, 'sh', ...daemonCommand()],
    args: [`--cgroup-root=${root}`],
  });
  const { pid, ended } = await startSleeper(daemon);
  const end = await withoutDescriptors(daemon, () => {
    process.kill(pid, 'SIGKILL');
    return ended;
  });
  expect(end).toMatchObject({ end: { status: 'signal: killed' } });
  await expectWell(daemon);
  expect((await connectTo(daemon.url).process.list({})).processes).toEqual([]);
});

test('clients that connect without free descriptors are served when there are some', async () => {
  await using daemon = await startDaemon();
  const answers = await withoutDescriptors(daemon, async () => {
    const sockets = Array.from({ length: 50 }, () => connect(daemon.port, '127.0.0.1'));
    onTestFinished(() => sockets.forEach((socket) => void socket.destroy()));
    await Promise.all(sockets.map((socket) => once(socket, 'connect')));
    for (const socket of sockets)
      socket.write('GET /health HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n');
    return sockets.map((socket) => once(socket.setEncoding('latin1'), 'data'));
  });
  for (const [answer] of await Promise.all(answers)) expect(answer).toMatch(/^HTTP\/1.1 204 /);
  await expectWell(daemon);
});

test('a call that needs a descriptor is resource_exhausted', async () => {
  await using daemon = await startDaemon();
  const { filesystem } = connectTo(daemon.url);
  await filesystem.stat({ path: '/' });
  const error = await withoutDescriptors(daemon, () =>
    filesystem.listDir({ path: '/usr' }).catch((reason: unknown) => ConnectError.from(reason)),
  );
  expect(error).toMatchObject({ code: Code.ResourceExhausted });
  await expectWell(daemon);
});

test('a stop without free descriptors ends the daemon and its processes', async () => {
  const daemon = await startDaemon();
  const { pid } = await startSleeper(daemon);
  setLimit(daemon, 3);
  expect(await daemon.stop()).toBe(1);
  // The last lines may come after the exit.
  const told = expect.objectContaining({ msg: 'the stop failed: exiting' });
  await expect.poll(() => daemon.log).toContainEqual(told);
  await expect.poll(() => isGone(pid)).toBe(true);
  await expect.poll(() => removed(daemon.cgroupRoot)).toBe(true);
});

/** Removes the cgroups that the daemon could not remove; false while a process is still ending. */
function removed(cgroup: string | null): boolean {
  if (cgroup === null || !existsSync(cgroup)) return true;
  try {
    const below = readdirSync(cgroup, { withFileTypes: true }).filter((entry) => entry.isDirectory());
    for (const { name } of below) removed(join(cgroup, name));
    rmdirSync(cgroup);
    return true;
  } catch {
    return false;
  }
}

test('the first scrape of the metrics works again when descriptors are free', async () => {
  await using daemon = await startDaemon();
  // One connection, from before: nothing but the scrape itself needs a descriptor.
  using agent = disposable(new Agent({ keepAlive: true, maxSockets: 1 }));
  const metrics = async (accept: string) => {
    const call = get(`${daemon.url}/metrics`, { agent, headers: { accept } });
    const [response] = (await once(call, 'response')) as [IncomingMessage];
    return { status: response.statusCode, body: await text(response) };
  };
  expect((await metrics('*/*')).status).toBe(200);
  expect((await withoutDescriptors(daemon, () => metrics('text/plain'))).status).not.toBe(200);
  expect(await metrics('text/plain')).toEqual({
    status: 200,
    body: expect.stringContaining('envd_calls_total'),
  });
});

function disposable(agent: Agent): Agent & Disposable {
  return Object.assign(agent, { [Symbol.dispose]: () => agent.destroy() });
}
