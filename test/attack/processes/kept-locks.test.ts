import { spawn } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import { byPid, connectTo } from '../../support/clients/clients.ts';
import { needs } from '../../support/machine/needs.ts';
import { runs } from '../../support/machine/proc.ts';
import { isWaiting } from '../../support/machine/stuck-call.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { until } from '../../support/until.ts';

/*
 * A process keeps its pipe or terminal locked for good, and the event loop uses that: to read, to write, to ask how much is
 * in it, to set its size or to close it. The process is killed, and the daemon goes on.
 */

const ATTACKER = fileURLToPath(new URL('../../support/attackers/keep-locked.py', import.meta.url));

/** Starts the attacker. `held` resolves with the pid that it tells, `ended` when its stream has ended. */
function attack(daemon: TestDaemon, args: string[], isTerminal = false) {
  const { process: client } = connectTo(daemon.url);
  const stream = client.start({
    process: { cmd: 'python3', args: [ATTACKER, ...args] },
    ...(isTerminal ? { pty: { size: { cols: 80, rows: 24 } } } : { stdin: true }),
  });
  const started = Promise.withResolvers<number>();
  const ready = Promise.withResolvers<void>();
  const held = Promise.withResolvers<number>();
  const follow = async () => {
    let text = '';
    for await (const { event } of stream) {
      if (event?.event.case === 'start') started.resolve(event.event.value.pid);
      if (event?.event.case === 'data') text += new TextDecoder().decode(event.event.value.output.value);
      if (text !== '') ready.resolve();
      const pid = Number(/held (\d+)\s/.exec(text)?.[1] ?? 0);
      if (pid > 0) held.resolve(pid);
    }
  };
  const ended = follow();
  ended.catch(() => {});
  const kill = async () => {
    const pid = await held.promise;
    if (runs(pid)) process.kill(pid, 'SIGKILL');
  };
  onTestFinished(kill);
  return { client, ended, started: started.promise, ready: ready.promise, held: held.promise };
}

async function isServing({ url }: TestDaemon): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, 200)); // The call is in the kernel by then.
  expect((await fetch(`${url}/health`)).status).toBe(204);
}

const value = new TextEncoder().encode('x');

test.each([false, true])(
  'a process that left its output (a terminal: %s) to one that keeps it locked',
  async (terminal) => {
    needs('cgroup v2', 'userfaultfd');
    await using daemon = await startDaemon();
    const { held, ended } = attack(daemon, ['leave'], terminal);
    const pid = await held;
    await ended;
    await isServing(daemon);
    await until('the attacker has been killed', () => !runs(pid));
  },
);

test('a process that keeps its input locked', async () => {
  needs('cgroup v2', 'userfaultfd');
  await using daemon = await startDaemon();
  const { client, held, ended, started, ready } = attack(daemon, ['read', '/dev/stdin']);
  const request = { process: byPid(await started), input: { input: { case: 'stdin' as const, value } } };
  await ready;
  await client.sendInput(request);
  const pid = await held;
  await client.sendInput(request).catch(() => {}); // It may be refused: its reader is killed.
  await isServing(daemon);
  await ended;
  expect(runs(pid)).toBe(false);
});

test('a process that keeps the size of its terminal locked', async () => {
  needs('cgroup v2', 'userfaultfd');
  await using daemon = await startDaemon();
  const { client, held, ended, started } = attack(daemon, ['size'], true);
  const pid = await held;
  await client.update({ process: byPid(await started), pty: { size: { cols: 100, rows: 30 } } });
  await isServing(daemon);
  await ended;
  expect(runs(pid)).toBe(false);
});

test('a process that keeps its output locked for a short time, again and again', async () => {
  needs('cgroup v2', 'userfaultfd');
  await using daemon = await startDaemon();
  const { held, ended } = attack(daemon, ['again']);
  const pid = await held;
  await ended;
  expect(runs(pid)).toBe(false);
  await until('the log tells it', () => daemon.log.some(({ msg }) => msg === KILLED));
});

const KILLED = 'killed a process that kept its pipe or terminal locked';

/** Starts `sleep` as a command or in a terminal. Resolves with its pid. */
async function sleeper({ url }: TestDaemon, isTerminal: boolean): Promise<number> {
  const stream = connectTo(url).process.start({
    process: { cmd: 'sleep', args: ['1000'] },
    stdin: !isTerminal,
    ...(isTerminal && { pty: { size: { cols: 80, rows: 24 } } }),
  });
  const events = stream[Symbol.asyncIterator]();
  const { value: first } = await events.next();
  const rest = async () => {
    while (!(await events.next()).done);
  };
  rest().catch(() => {});
  return first?.event?.event.case === 'start' ? first.event.event.value.pid : 0;
}

test('a stranger who keeps the input of a command locked reaches no other', async () => {
  needs('cgroup v2', 'userfaultfd');
  await using daemon = await startDaemon();
  const { process: client } = connectTo(daemon.url);
  const victim = await sleeper(daemon, false);
  const others = [await sleeper(daemon, false), await sleeper(daemon, true)];
  const stranger = spawn('python3', [ATTACKER, 'read', `/proc/${victim}/fd/0`], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  // The daemon waits for it even if the test fails.
  using _ = { [Symbol.dispose]: () => stranger.kill('SIGKILL') };
  let told = '';
  stranger.stdout.on('data', (data: Buffer) => {
    told += data.toString();
  });
  await until('it is ready', () => told.includes('ready'));
  // The first input makes it read, which takes the lock. The daemon waits for the lock with the second.
  const request = { process: byPid(victim), input: { input: { case: 'stdin' as const, value } } };
  await client.sendInput(request);
  await until('it has the lock', () => told.includes('held'));
  client.sendInput(request).catch(() => {});
  // Its end waits for the lock, too.
  await until('the command is killed', () => daemon.log.some(({ msg }) => msg === KILLED));
  await until('the daemon waits still', () => isWaiting(`/proc/${daemon.pid}`));
  await sleep(5000); // Time to kill more.
  expect(others.map(runs)).toEqual([true, true]);
  expect(stranger.exitCode).toBeNull();
  stranger.kill('SIGKILL');
  await isServing(daemon);
  await until('the command has ended', () => !runs(victim));
  expect(others.map(runs)).toEqual([true, true]);
  expect(daemon.log.filter(({ msg }) => msg === KILLED)).toHaveLength(1);
});
