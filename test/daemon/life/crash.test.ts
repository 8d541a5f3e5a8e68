import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { Code } from '@connectrpc/connect';
import { expect, onTestFinished, test } from 'vitest';
import { SignalScope } from '../../../src/gen/process/process_pb.js';
import { byPid, byTag, connectTo, transcribe } from '../../support/clients/clients.ts';
import { exitIsTold } from '../../support/machine/machine.ts';
import { needs } from '../../support/machine/needs.ts';
import { childrenOf, openFiles, runs, starterOf } from '../../support/machine/proc.ts';
import { startSupervised } from '../../support/programs/supervised.ts';
import { bash, follow, input, startDetached, UNKNOWN } from '../../support/programs/workload.ts';
import { until } from '../../support/until.ts';

const textOf = (parts: readonly Uint8Array[]) => Buffer.concat(parts).toString();

const directoriesIn = (path: string) =>
  readdirSync(path, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map(({ name }) => name);

/** The descriptors in the queues of all sockets of a process. Source: scm_fds of proc_pid_fdinfo(5). */
function descriptorsInQueues(pid: number): number {
  const counts = readdirSync(`/proc/${pid}/fdinfo`).map((name) => {
    try {
      return Number(/^scm_fds: (\d+)$/m.exec(readFileSync(`/proc/${pid}/fdinfo/${name}`, 'utf8'))?.[1] ?? 0);
    } catch {
      return 0;
    }
  });
  return counts.reduce((sum, count) => sum + count, 0);
}

test('after a kill of the daemon, the next one has its processes: output, input, terminals, exit codes', async () => {
  await using supervised = await startSupervised();
  const clients = connectTo(supervised.daemon.url, 'binary');
  const echo = follow(
    clients,
    await startDetached(clients, {
      process: bash('echo before; while read x; do echo "<$x>"; done; exit 9'),
      tag: 'echo',
    }),
  );
  const terminal = follow(
    clients,
    await startDetached(clients, {
      process: bash('stty -echo; echo on; while read x; do echo "<$x>"; [ "$x" = end ] && exit 3; done'),
      pty: { size: { cols: 80, rows: 24 } },
    }),
  );
  await until('both have begun', () => echo.following.parts.stdout[0] && terminal.following.parts.pty[0]);
  await supervised.crash();

  const { processes } = await clients.process.list({});
  expect(processes.map(({ pid, tag }) => [pid, tag])).toEqual([
    [echo.pid, 'echo'],
    [terminal.pid, undefined],
  ]);
  await clients.process.sendInput({ process: byTag('echo'), input: input('stdin', 'one\n') });
  await clients.process.sendInput({ process: byPid(terminal.pid), input: input('pty', 'two\n') });
  await until('it answers', () => textOf(echo.following.parts.stdout).includes('one'));
  await supervised.crash();
  await clients.process.closeStdin({ process: byTag('echo') });
  await clients.process.sendInput({ process: byPid(terminal.pid), input: input('pty', 'end\n') });
  expect(await echo.end).toMatchObject({ exited: true, exitCode: 9 });
  expect(textOf(echo.following.parts.stdout)).toBe('before\n<one>\n');
  expect(await terminal.end).toMatchObject({ exited: true, exitCode: 3 });
  expect(textOf(terminal.following.parts.pty)).toBe('on\r\n<two>\r\n<end>\r\n');
});

test('after a kill in the middle of a drawing, a terminal has its modes and its size', async () => {
  await using supervised = await startSupervised();
  const clients = connectTo(supervised.daemon.url, 'binary');
  const script = "printf '\\033[?1049h'; while :; do sleep 0.1; done";
  const pty = { size: { cols: 80, rows: 24 } };
  const pid = await startDetached(clients, { process: bash(script), pty });
  const joined = async () => {
    for await (const { event } of clients.process.connect({ process: byPid(pid), screen: true })) {
      if (event?.event.case === 'start')
        expect(event.event.value.size).toMatchObject({ cols: 100, rows: 30 });
      if (event?.event.case === 'data') return String(Buffer.from(event.event.value.output.value ?? []));
    }
    return null;
  };
  await clients.process.update({ process: byPid(pid), pty: { size: { cols: 100, rows: 30 } } });
  expect(await joined()).toBe('\x1b[?1049h');
  await supervised.crash();
  const size = () => String(execFileSync('sh', ['-c', 'exec stty size < /proc/$0/fd/0', String(pid)])).trim();
  expect(size()).toBe('30 100');
  expect(await joined()).toBe('\x1b[?1049h');
});

test.each([
  { ends: ['crash', 'crash', 'crash'] },
  { ends: ['upgrade', 'crash'] },
  { ends: ['crash', 'upgrade', 'crash'] },
] as const)('a process that has ended is known after $ends', async ({ ends }) => {
  await using supervised = await startSupervised();
  const clients = connectTo(supervised.daemon.url, 'binary');
  const whole = await transcribe(clients.process.start({ process: bash('echo all; exit 4') }));
  for (const how of ends) await supervised[how]();
  const again = await transcribe(
    clients.process.connect({ process: byPid(whole.pid), resumeFrom: { stdout: 0n } }),
  );
  expect(again.end).toMatchObject({ exited: true, exitCode: 4 });
  expect(String(again.stdout)).toBe('all\n');
});

test('an exit while the daemon is away is told as the kernel tells it; output of that time is there', async () => {
  await using supervised = await startSupervised();
  const clients = connectTo(supervised.daemon.url, 'binary');
  const script = (end: string) =>
    bash(`echo one; while [ -e /proc/${supervised.main()} ]; do :; done; ${end}`);
  const pids = await Promise.all(
    ['echo two; exit 7', 'kill -9 $$', 'head -c 30000 /dev/zero; exit 0'].map((end) =>
      startDetached(clients, { process: script(end) }),
    ),
  );
  const all = pids.map((pid) => follow(clients, pid));
  await until('all run', () => all.every(({ following }) => following.parts.stdout[0]));
  await supervised.crash();
  const [exited, killed, full] = await Promise.all(all.map(({ end }) => end));
  const known = exitIsTold();
  expect(exited).toMatchObject(known ? { exited: true, exitCode: 7 } : UNKNOWN);
  expect(killed).toMatchObject(known ? { exited: false, status: 'signal: killed' } : UNKNOWN);
  expect(full).toMatchObject(known ? { exited: true, exitCode: 0 } : UNKNOWN);
  const outputs = all.map(({ following }) => Buffer.concat(following.parts.stdout));
  expect(outputs.map(String).slice(0, 2)).toEqual(['one\ntwo\n', 'one\n']);
  expect(outputs[2]?.length).toBe(30_004);
});

test.each(['crash', 'upgrade'] as const)(
  'the token, settings, start ids and deadlines go over a %s',
  async (how) => {
    await using supervised = await startSupervised();
    const { url } = supervised.daemon;
    const next = () =>
      how === 'crash' ? supervised.crash() : supervised.upgrade({ 'X-Access-Token': 'secret' });
    const init = (body: object) => fetch(`${url}/init`, { method: 'POST', body: JSON.stringify(body) });
    const clients = connectTo(url);
    const pid = await startDetached(clients, { process: bash('exec sleep 1000'), startId: 'once' });
    const abort = new AbortController();
    const limited = clients.process
      .start({ process: bash('exec sleep 1000'), tag: 'limited' }, { timeoutMs: 6000, signal: abort.signal })
      [Symbol.asyncIterator]();
    await limited.next();
    const failed = limited.next().catch(() => {});
    // They are the time now, so they set no clock.
    const times = [Date.now(), Date.now() + 1].map((time) => new Date(time).toISOString());
    expect((await init({ envVars: { MOOD: 'merry' }, timestamp: times[0] })).status).toBe(204);
    expect((await init({ timestamp: times[1] })).status).toBe(204);
    await next();
    // It is not newer than the last one, so it changes nothing.
    expect((await init({ envVars: { MOOD: 'sad' }, timestamp: times[1] })).status).toBe(204);
    await failed;
    const again = clients.process.start({ process: bash('exec sleep 1000'), startId: 'once' });
    expect((await again[Symbol.asyncIterator]().next()).value?.event?.event).toMatchObject({
      case: 'start',
      value: { pid },
    });
    expect(await (await fetch(`${url}/envs`)).json()).toEqual({ MOOD: 'merry' });
    const end = transcribe(clients.process.connect({ process: byTag('limited') }));
    expect((await end).end).toMatchObject({ status: 'signal: killed' });
    expect((await init({ accessToken: 'secret', envVars: {} })).status).toBe(204);
    await next();
    expect((await fetch(`${url}/envs`)).status).toBe(401);
    expect((await fetch(`${url}/envs`, { headers: { 'X-Access-Token': 'secret' } })).status).toBe(200);
  },
);

test('signals, tree kills and CloseStdin of processes that another daemon has started', async () => {
  await using supervised = await startSupervised();
  const clients = connectTo(supervised.daemon.url);
  const reader = await startDetached(clients, { process: { cmd: 'cat' } });
  const tree = await startDetached(clients, {
    process: bash('setsid sleep 1000 & sleep 1000 & trap "" TERM; wait; wait; wait'),
    tag: 'tree',
  });
  await until('the tree stands', () => childrenOf(tree).length === 2);
  const children = childrenOf(tree);
  await supervised.crash();
  await clients.process.closeStdin({ process: byPid(reader) });
  const ended = await transcribe(clients.process.connect({ process: byPid(reader) }));
  expect(ended.end).toMatchObject(exitIsTold() ? { exitCode: 0, exited: true } : UNKNOWN);
  const signal = { signal: 9, scope: SignalScope.TREE };
  await clients.process.sendSignal({ process: byTag('tree'), ...signal });
  await until('the tree is gone', () => !children.some(runs));
});

test('input is at its end at once when it is closed, whatever is kept', async () => {
  await using supervised = await startSupervised();
  const clients = connectTo(supervised.daemon.url);
  const others = await Promise.all(
    Array.from({ length: 40 }, () => startDetached(clients, { process: { cmd: 'cat' } })),
  );
  for (const pid of others.toReversed()) {
    const end = transcribe(clients.process.connect({ process: byPid(pid) }));
    await clients.process.closeStdin({ process: byPid(pid) });
    expect((await end).end).toMatchObject({ exitCode: 0 });
  }
});

test('what the daemon was starting when it was killed is ended', async () => {
  needs('cgroup v2');
  await using supervised = await startSupervised();
  const { daemon } = supervised;
  const clients = connectTo(daemon.url);
  const known = await startDetached(clients, { process: bash('exec sleep 1000') });
  // It is stopped before its execve, by a freeze: its start is under way for as long as that.
  const leaves = () => directoriesIn(`${daemon.cgroupRoot}/user`);
  const before = leaves();
  const start = clients.process.start({ process: bash('exec sleep 1001') })[Symbol.asyncIterator]();
  const failed = start.next().catch(() => {});
  const freezing = setInterval(() => {
    for (const leaf of leaves())
      if (!before.includes(leaf)) {
        try {
          writeFileSync(`${daemon.cgroupRoot}/user/${leaf}/cgroup.freeze`, '1');
        } catch {}
      }
  });
  onTestFinished(() => clearInterval(freezing));
  await until('it is being started', () => leaves().length > before.length);
  process.kill(supervised.main(), 'SIGSTOP');
  clearInterval(freezing);
  await supervised.crash();
  await failed;
  const { processes } = await clients.process.list({});
  const [other] = processes.filter(({ pid }) => pid !== known);
  // Either it was known already, or nothing is left of it.
  if (!other) await until('it is gone', () => leaves().length === 1);
  expect(processes.length).toBeLessThanOrEqual(2);
});

test('an id whose start was under way in a kill is refused by the next daemons; another one starts the process', async () => {
  await using supervised = await startSupervised();
  const clients = connectTo(supervised.daemon.url);
  const request = { process: { cmd: 'true' } };
  await transcribe(clients.process.start(request));
  const starter = await until('there is a starter', () => starterOf(supervised.main()));
  process.kill(starter, 'SIGSTOP');
  onTestFinished(() => void process.kill(starter, 'SIGKILL'));
  await until('it is stopped', () => /^State:\tT/m.test(readFileSync(`/proc/${starter}/status`, 'utf8')));
  const start = () => startDetached(clients, { ...request, startId: 'once' });
  const cut = expect(start()).rejects.toThrow();
  await until('the starter has the request', () => descriptorsInQueues(starter) > 0);
  await supervised.crash();
  await cut;
  const refused = { code: Code.Aborted, message: expect.stringContaining("start id 'once'") };
  await expect(start()).rejects.toMatchObject(refused);
  for (const how of ['upgrade', 'crash'] as const) {
    await supervised[how]();
    await expect(start()).rejects.toMatchObject(refused);
  }
  expect(await startDetached(clients, { ...request, startId: 'another' })).toBeGreaterThan(0);
});

test('nothing of 1,000 processes is left in the records; they take few descriptors', async () => {
  await using supervised = await startSupervised();
  const clients = connectTo(supervised.daemon.url, 'binary');
  const long = await startDetached(clients, { process: { cmd: 'cat' } });
  const kept = () => descriptorsInQueues(supervised.main());
  const before = kept();
  for (let round = 0; round < 50; round += 1) {
    await Promise.all(
      Array.from({ length: 20 }, () => transcribe(clients.process.start({ process: { cmd: '/bin/true' } }))),
    );
  }
  await until('all is removed', () => kept() <= before + 1);
  await supervised.crash();
  expect((await clients.process.list({})).processes.map(({ pid }) => pid)).toEqual([long]);
  expect(supervised.stored().length).toBeLessThan(34);
  await until('all is removed', () => kept() <= before + 1);
  const environment = readFileSync(`/proc/${long}/environ`, 'utf8');
  expect(environment).not.toMatch(/LISTEN_|NOTIFY_SOCKET/);
});

test('upgrades and crashes follow each other', async () => {
  await using supervised = await startSupervised();
  const { daemon } = supervised;
  const clients = connectTo(daemon.url);
  const pid = await startDetached(clients, {
    process: bash('while read x; do echo "<$x>"; done; exit 4'),
  });
  const { following, end } = follow(clients, pid);
  const ready = () => daemon.log.filter(({ msg }) => msg === 'ready').length;
  for (const round of [1, 2]) {
    await supervised.crash();
    await clients.process.sendInput({ process: byPid(pid), input: input('stdin', `a${round}\n`) });
    const before = ready();
    expect((await fetch(`${daemon.url}/upgrade`, { method: 'POST' })).status).toBe(202);
    await until('the new program listens', () => ready() > before);
    await clients.process.sendInput({ process: byPid(pid), input: input('stdin', `b${round}\n`) });
  }
  const [listener = ''] = supervised.stored().filter((name) => name.startsWith('listener-'));
  const socket = listener.replace(/^listener-(\d+)$/, 'socket:[$1]');
  // The service manager of the tests closes duplicates, as systemd does, or it would grow with each crash.
  await until(
    'it keeps one',
    () => openFiles(daemon.pid).filter((target) => target === socket),
    ({ length }) => length === 1,
  );
  await clients.process.closeStdin({ process: byPid(pid) });
  expect(await end).toMatchObject(exitIsTold() ? { exitCode: 4 } : UNKNOWN);
  expect(textOf(following.parts.stdout)).toBe('<a1>\n<b1>\n<a2>\n<b2>\n');
});
