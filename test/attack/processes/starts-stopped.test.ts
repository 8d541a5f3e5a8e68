import { type ChildProcess, spawn } from 'node:child_process';
import { chmodSync, mkdirSync, readdirSync } from 'node:fs';
import { Code, ConnectError } from '@connectrpc/connect';
import { expect, onTestFinished, test } from 'vitest';
import { connectTo, transcribe } from '../../support/clients/clients.ts';
import { needs } from '../../support/machine/needs.ts';
import { childrenOf, openFiles, runs, starterOf } from '../../support/machine/proc.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { until } from '../../support/until.ts';

/*
 * Processes are stopped before their execve: by SIGSTOP of another process of their user, and by a freeze. No other call
 * waits for them.
 */

/** A user of every Debian, whose processes no other test has. */
const UUCP = { name: 'uucp', uid: 10 };
/** Starts in flight: more than the thread pool has threads. */
const AT_ONCE = 64;
/** Starts that must have been caught between setresuid and execve, and rounds after which the attack is given up. */
const CAUGHT = 20;
const MOST_ROUNDS = 40;
/** More than a start on a busy machine needs. */
const START_S = 4;

const authorization = `Basic ${Buffer.from(`${UUCP.name}:`).toString('base64')}`;

/** Runs a program of the user that stops all his other processes, in a loop, while this process lives. */
async function stopper(): Promise<ChildProcess> {
  const script = `
import ctypes, os
os.setgroups([]); os.setgid(${UUCP.uid}); os.setuid(${UUCP.uid})
libc = ctypes.CDLL(None)
print("ready", flush=True)
while os.getppid() == ${process.pid}:
    libc.kill(-1, 19)
`;
  const child = spawn('python3', ['-c', script], { stdio: ['ignore', 'pipe', 'inherit'] });
  onTestFinished(() => end(child));
  await new Promise((resolve) => child.stdout.once('data', resolve));
  return child;
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = new Promise((done) => child.once('exit', done));
  child.kill('SIGKILL');
  await gone;
}

/** A directory that takes long to enter, as chdir(2) is where a start can be stopped. */
function deepDirectory(top: string): string {
  chmodSync(top, 0o755);
  const path = `${top}${'/d'.repeat(1900)}`;
  mkdirSync(path, { recursive: true });
  return path;
}

interface StartOptions {
  readonly cwd?: string;
  readonly headers?: Record<string, string>;
  /** After this time the process is killed. */
  readonly timeoutMs?: number;
}

/** Starts `/bin/true`; returns its exit status or its error. */
async function start(
  daemon: TestDaemon,
  { cwd = '/', headers = { authorization }, timeoutMs = 60_000 }: StartOptions = {},
): Promise<string> {
  const request = { process: { cmd: '/bin/true', cwd } };
  try {
    const stream = connectTo(daemon.url).process.start(request, { headers, timeoutMs });
    return (await transcribe(stream)).end?.status ?? 'no end';
  } catch (error) {
    const { code, rawMessage } = ConnectError.from(error);
    return `${Code[code]}: ${rawMessage}`;
  }
}

const NOT_RUN = `DeadlineExceeded: cannot start '/bin/true': it did not run within ${START_S} s: another process stopped it, or a file system hangs`;

/** Calls that use the thread pool or the event loop, one after the other. */
async function callAll(daemon: TestDaemon): Promise<void> {
  const { filesystem } = connectTo(daemon.url);
  expect((await fetch(`${daemon.url}/health`)).status).toBe(204);
  await filesystem.stat({ path: daemon.scratch });
  expect((await fetch(`${daemon.url}/metrics`)).status).toBe(200);
  expect((await fetch(`${daemon.url}/files?path=/etc/os-release`)).status).toBe(200);
  expect(await start(daemon, { headers: {} })).toBe('exit status 0');
}

test('starts that another process stops hold nobody up, and are ended and reported', async () => {
  needs('root');
  await using daemon = await startDaemon({ args: [`--start-timeout=${START_S}`] });
  await callAll(daemon);
  const before = openFiles(daemon.pid).length;
  const cwd = deepDirectory(daemon.scratch);
  const attack = await stopper();
  let caught = 0;
  for (let round = 0; caught < CAUGHT; round++) {
    expect(round).toBeLessThan(MOST_ROUNDS);
    // One that is stopped after its execve would never end.
    const timeoutMs = 2 * START_S * 1000;
    const results = Promise.all(Array.from({ length: AT_ONCE }, () => start(daemon, { cwd, timeoutMs })));
    await callAll(daemon);
    caught += (await results).filter((result) => result === NOT_RUN).length;
  }
  await end(attack);
  expect(await start(daemon)).toBe('exit status 0');
  await until('nothing is left', () => childrenOf(daemon.pid).length === 0);
  await until('descriptors are closed', () => openFiles(daemon.pid).length <= before);
});

test('a freeze in the middle of starts holds nobody up; they go on after it', async () => {
  needs('root', 'cgroup v2');
  // A start on a busy machine may take long. One that the freeze has lost is reported as late after this time.
  await using daemon = await startDaemon({ args: ['--start-timeout=60'] });
  for (let round = 0; round < 10; round++) {
    const results = Promise.all(Array.from({ length: AT_ONCE }, () => start(daemon)));
    // From none to most of them have been started.
    for (let call = 0; call < round; call++) await fetch(`${daemon.url}/health`);
    expect((await fetch(`${daemon.url}/freeze`, { method: 'POST' })).status).toBe(204);
    await connectTo(daemon.url).filesystem.stat({ path: daemon.scratch });
    expect((await fetch(`${daemon.url}/init`, { method: 'POST' })).status).toBe(204);
    const frozen = 'Unavailable: cannot start a process: the workload is frozen';
    for (const result of await results) expect(['exit status 0', frozen]).toContain(result);
  }
  const { cgroupRoot } = daemon;
  await until('leaves are gone', () =>
    readdirSync(`${cgroupRoot}/user`, { withFileTypes: true }).every((e) => !e.isDirectory()),
  );
});

test('when the starter was killed, the next start starts another', async () => {
  await using daemon = await startDaemon();
  expect(await start(daemon, { headers: {} })).toBe('exit status 0');
  const first = starterOf(daemon.pid);
  if (first === undefined) throw new Error('no starter was found');
  process.kill(first, 'SIGKILL');
  await until('it has ended', () => !runs(first));
  expect(await start(daemon, { headers: {} })).toBe('exit status 0');
  expect(starterOf(daemon.pid)).not.toBe(first);
});
