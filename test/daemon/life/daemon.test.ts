import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { fileURLToPath } from 'node:url';
import { Code, ConnectError } from '@connectrpc/connect';
import { describe, expect, test } from 'vitest';
import { connectTo, transcribe } from '../../support/clients/clients.ts';
import { loopMount, untilUninterruptible } from '../../support/machine/cgroups.ts';
import { needs } from '../../support/machine/needs.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { startDaemon } from '../../support/programs/daemon.ts';
import { daemonCommand } from '../../support/programs/programs.ts';

const { PATH, NODE_COMPILE_CACHE } = process.env;
const ROOT = fileURLToPath(new URL('../../..', import.meta.url));

function envd(args: string[], env: Record<string, string> = {}) {
  const [program, ...before] = daemonCommand();
  const { status, stdout, stderr } = spawnSync(program, [...before, ...args], {
    env: { PATH, NODE_COMPILE_CACHE, ENVD_LOG_LEVEL: 'silent', ...env },
    encoding: 'utf8',
  });
  return { status, stdout, stderr };
}

describe('the command line', () => {
  test('--help lists the flags', () => {
    const help = envd(['--help']);
    expect(help.status).toBe(0);
    for (const flag of [
      '--port',
      '--host',
      '--cgroup-root',
      '--no-cgroups',
      '--metadata-service',
      '--unread-bytes',
      '--request-bytes',
      '--max-connections',
      '--max-streams',
      '--max-processes',
      '--max-tasks',
      '--log-collector',
      '--name-prefix',
      '--require-token',
      '--token-file',
      '--version',
      '--commit',
    ]) {
      expect(help.stdout).toContain(flag);
    }
    const headings = help.stdout.match(/^\S.*:$/gm);
    expect(headings).toEqual([
      'Options:',
      'Server:',
      'Access:',
      'Log:',
      'Limits of the daemon:',
      'Processes of clients:',
      'Guest:',
      'Upgrade:',
    ]);
  });

  test.each(['--version', '-version', '-V'])('%s prints the interface level and nothing else', (flag) => {
    expect(envd([flag])).toEqual({ status: 0, stdout: '0.6.13\n', stderr: '' });
    // Variables of these names belong to other programs.
    expect(envd([flag], { ENVD_VERSION: '1', ENVD_COMMIT: '1' })).toMatchObject({ stdout: '0.6.13\n' });
  });

  test.each(['--commit', '-commit'])('%s prints the commit and nothing else', (flag) => {
    const git = spawnSync('git', ['-C', ROOT, 'rev-parse', 'HEAD'], { encoding: 'utf8' });
    const commit = git.status === 0 ? git.stdout.trim() : 'unknown';
    const run = envd([flag]);
    expect(run).toMatchObject({ status: 0, stderr: '' });
    expect([`${commit}\n`, `${commit}-dirty\n`]).toContain(run.stdout);
  });

  test('long flags may have one dash, as in the reference', async () => {
    await using daemon = await startDaemon({
      args: ['-log-level', 'debug', '-no-cgroups', '-history-bytes=5'],
    });
    await fetch(`${daemon.url}/health`);
    await expect.poll(() => daemon.log.some((line) => line.level === 20)).toBe(true);
  });

  test.each([
    [['--port=x'], {}, /--port.*whole number from 0 to 65535/],
    [['--port=65536'], {}, /--port/],
    [['--nope'], {}, /unknown option '--nope'/],
    [['-nope'], {}, /unknown option '--nope'/],
    [['--name-prefix=Svc'], {}, /--name-prefix.*lower case/],
    [['--name-prefix=a.b'], {}, /--name-prefix/],
    [['--name-prefix=../x'], {}, /--name-prefix/],
    [['word'], {}, /too many arguments/],
    [['--max-tasks=0'], {}, /--max-tasks.*whole number, at least 1/],
    [['--max-streams=none'], {}, /--max-streams.*whole number/],
    [['--max-processes=0'], {}, /--max-processes/],
    [['--unread-bytes=1k'], {}, /--unread-bytes.*whole number of bytes/],
    [['--start-timeout=86401'], {}, /--start-timeout.*seconds from 1 to 86400, a day/],
    [['--file-timeout=86401'], {}, /--file-timeout.*seconds from 1 to 86400, a day/],
    [['--upgrade-timeout=86401'], {}, /--upgrade-timeout.*seconds from 1 to 86400, a day/],
    [['--log-level=loud'], {}, /Allowed choices are/],
    [['--cgroup-root=relative'], {}, /absolute path/],
    [['--fsfreeze-path=relative'], {}, /absolute path/],
    [['--metadata-service=169.254.169.254'], {}, /--metadata-service.*http URL/],
    [['--metadata-service=https://host/'], {}, /http URL/],
    [['--metadata-service=http://user:secret@host/'], {}, /http URL/],
    [['--log-collector=ftp://host/'], {}, /--log-collector.*http or https URL/],
    [['--host=999.1.1.1'], {}, /cannot listen on 999.1.1.1 port 49983: E/],
    [['--cgroup-root=/tmp', '--port=0'], {}, /not a cgroup v2 directory: '\/tmp'/],
    [[], { ENVD_PORT: 'x' }, /--port.*whole number/],
    [[], { ENVD_LOG_LEVEL: 'loud' }, /Allowed choices/],
  ])('%j %j is bad usage', (args, env, sentence) => {
    const run = envd(args, env);
    expect(run.status).toBe(2);
    expect(run.stderr).toMatch(sentence);
    expect(run.stdout).toBe('');
  });

  test('a variable sets its flag; a flag overrides its variable', async () => {
    await using daemon = await startDaemon({ env: { ENVD_PORT: '1', ENVD_LOG_LEVEL: 'debug' } });
    await fetch(`${daemon.url}/health`);
    expect(daemon.port).not.toBe(1);
    await expect.poll(() => daemon.log.some((line) => line.level === 20)).toBe(true);
  });

  test('a port that is taken: one line on stderr and exit code 1', async () => {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as { port: number };
    const run = envd([
      '--no-cgroups',
      '--host=127.0.0.1',
      `--port=${port}`,
      `--runtime-directory=${scratch()}/run`,
    ]);
    server.close();
    const holder = new RegExp(
      `^envd: cannot listen on 127.0.0.1 port ${port}: the port is taken by user ${process.getuid?.()}, process ${process.pid} '.+'\n$`,
    );
    expect(run).toEqual({
      status: 1,
      stdout: '',
      stderr: expect.stringMatching(holder),
    });
  });
});

test('commands run without cgroups', async () => {
  await using daemon = await startDaemon({ args: ['--no-cgroups'] });
  const run = await transcribe(
    connectTo(daemon.url).process.start({ process: { cmd: 'echo', args: ['hi'] } }),
  );
  expect(String(run.stdout)).toBe('hi\n');
});

test.each(['SIGTERM', 'SIGINT'] as const)(
  '%s under load ends all processes and removes all files',
  async (signal) => {
    await using daemon = await startDaemon();
    const { process: rpc, filesystem } = connectTo(daemon.url, 'binary');
    const pids: number[] = [];
    const started: Promise<void>[] = [];
    const ends = Array.from({ length: 8 }, (_, i) => {
      const { promise, resolve } = Promise.withResolvers<void>();
      started.push(promise);
      const command = i % 2 ? 'trap "" TERM; while :; do echo x; done' : 'sleep 300 & sleep 300';
      const stream = rpc.start({
        process: { cmd: 'bash', args: ['-c', command] },
        ...(i % 4 === 0 && { pty: {} }),
      });
      return transcribe(stream, (event) => {
        if (event.case === 'start') pids.push(event.value.pid);
        if (event.case === 'start') resolve();
      }).catch((error: unknown) => ConnectError.from(error).code);
    });
    await Promise.all(started);
    const watch = filesystem.watchDir({ path: daemon.scratch })[Symbol.asyncIterator]();
    await watch.next();

    expect(await daemon.stop(signal)).toBe(0);
    // Unavailable, or Aborted when the connection was closed because the client's buffers were full.
    for (const end of await Promise.all(ends)) expect([Code.Unavailable, Code.Aborted]).toContain(end);
    expect(
      await watch.next().then(
        () => null,
        (error: unknown) => ConnectError.from(error).code,
      ),
    ).toBe(Code.Unavailable);
    for (const pid of pids) expect(groupMembers(pid)).toEqual([]);
    if (daemon.cgroupRoot) expect(existsSync(`${daemon.cgroupRoot}/user`)).toBe(false);
    await expect(fetch(`${daemon.url}/health`)).rejects.toThrow();
    // Its directory for temporary files is below the scratch directory, like its runtime directory.
    expect(readdirSync(daemon.scratch, { recursive: true }).filter((name) => name !== 'run')).toEqual([]);
  },
);

test('a second signal ends the daemon and its processes at once', async () => {
  // With cgroups, a daemon that ends at once would leave them behind.
  await using daemon = await startDaemon({ args: ['--no-cgroups'] });
  const { promise: begun, resolve } = Promise.withResolvers<number>();
  const run = connectTo(daemon.url).process.start({
    process: { cmd: 'bash', args: ['-c', 'trap "" TERM; echo; while :; do read -t 10 <> <(:); done'] },
  });
  const ended = transcribe(run, (event, { pid }) => {
    if (event.case === 'data') resolve(pid);
  }).catch(() => null);
  const pid = await begun;
  process.kill(daemon.pid, 'SIGTERM');
  await expect.poll(() => daemon.log.some((line) => line.msg === 'stopping')).toBe(true);
  process.kill(daemon.pid, 'SIGINT');
  expect(await daemon.exited).toEqual({ code: 1, signal: null });
  await expect.poll(() => groupMembers(pid)).toEqual([]);
  await ended;
});

test('a stop that takes too long tells what it waits for', async () => {
  needs('root');
  using filesystem = loopMount('16M');
  // With cgroups, a daemon that ends at once would leave them behind.
  await using daemon = await startDaemon({ args: ['--no-cgroups'] });
  const { promise: begun, resolve } = Promise.withResolvers<number>();
  const args = ['-c', 'echo x >"$0/file"', filesystem.path];
  filesystem.freeze();
  const run = connectTo(daemon.url).process.start({ process: { cmd: 'bash', args } });
  const ended = transcribe(run, (event, { pid }) => void (event.case === 'start' && resolve(pid))).catch(
    () => null,
  );
  await untilUninterruptible(await begun);
  // Nothing ends a process that waits for a frozen file system.
  try {
    expect(await daemon.stop()).toBe(1);
    expect(daemon.log).toContainEqual(
      expect.objectContaining({
        msg: 'the stop took too long: exiting without waiting',
        waitsFor: 'processes',
      }),
    );
  } finally {
    filesystem.thaw();
  }
  await ended;
});

/** Processes of a group that still run; zombies that init has yet to reap do not. */
function groupMembers(group: number): string[] {
  return readdirSync('/proc').filter((name) => {
    if (!/^\d+$/.test(name)) return false;
    try {
      const [state, , pgrp] = readFileSync(`/proc/${name}/stat`, 'utf8').split(') ').at(-1)?.split(' ') ?? [];
      return Number(pgrp) === group && state !== 'Z' && state !== 'X';
    } catch {
      return false;
    }
  });
}
