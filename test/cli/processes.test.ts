import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { connectTo, transcribe } from '../support/clients/clients.ts';
import { scratch } from '../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../support/programs/daemon.ts';
import { envctl, envctlUntil, startEnvctl } from '../support/programs/envctl.ts';
import { API_KEY, startGateway } from '../support/programs/gateway.ts';
import { owned } from '../support/programs/owned.ts';
import { startFront } from '../support/servers/front.ts';
import { startRelay } from '../support/servers/relay.ts';
import { until } from '../support/until.ts';

let daemon: TestDaemon;
const run = (...args: string[]) => envctl(daemon.url, args);

beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(() => daemon?.[Symbol.asyncDispose]());

const processes = async () => JSON.parse((await run('ps', '--json')).stdout).processes;

describe('run', () => {
  test('passes on both streams and the exit code', async () => {
    const result = await run('run', 'sh', '-c', 'echo out; echo err >&2; exit 7');
    expect(result).toMatchObject({ code: 7, stdout: 'out\n', stderr: 'err\n' });
  });

  test('passes output on byte for byte', async () => {
    const { bytes } = await run('run', 'sh', '-c', "printf '\\000\\033[2J\\377\\n'");
    expect(bytes.toString('hex')).toBe('001b5b324aff0a');
  });

  test('passes 8 MiB through, in and out', async () => {
    const input = randomBytes(8 * 1024 * 1024);
    const { bytes, code } = await envctl(daemon.url, ['run', 'cat'], { input });
    expect(code).toBe(0);
    expect(bytes.equals(input)).toBe(true);
  });

  test('limits what the command takes, or says why not', async () => {
    const { stdout } = await run('run', '--nofile', '64', '--nice', '7', 'sh', '-c', 'ulimit -n; nice');
    expect(stdout).toBe('64\n7\n');
    const options = ['--memory', '512M', '--cpus', '0.5', '--pids', '50'];
    const { code, stderr } = await run('run', ...options, 'true');
    if (code !== 0)
      expect(stderr).toBe(
        'envctl: cannot start a process with limits.memoryBytes: cgroup v2 has no controller memory here\n',
      );
  });

  test.each([
    ['--memory', '0', 'a size such as 65536, 512M or 2G'],
    ['--memory', '9999999T', 'a size'],
    ['--memory', '-1', 'a size'],
    ['--cpus', '0.001', 'a number of CPUs'],
    ['--pids', '4194305', 'a whole number from 1 to 4194304'],
    ['--nofile', 'NaN', 'a whole number from 1 to 2147483647'],
    ['--nice', '-5', 'a whole number from 0 to 19'],
  ])('refuses %s %s', async (option, value, wanted) => {
    const { code, stderr } = await run('run', `${option}=${value}`, 'true');
    expect([code, stderr]).toEqual([120, expect.stringContaining(`It must be ${wanted}`)]);
  });

  test('options behind the command are its own', async () => {
    expect(await run('run', 'echo', '--json', '-t', '--help')).toMatchObject({
      stdout: '--json -t --help\n',
    });
    expect(await run('run', '--', 'echo', 'a')).toMatchObject({ stdout: 'a\n' });
  });

  test.each([
    ['a signal', ['sh', '-c', 'kill -TERM $$'], 143, ''],
    [
      'no such command',
      ['nosuch'],
      127,
      "envctl: cannot start 'nosuch': ENOENT: executable file not found in PATH\n",
    ],
    [
      'not executable',
      ['/etc/passwd'],
      126,
      "envctl: cannot start '/etc/passwd': EACCES: permission denied\n",
    ],
    ['no such directory', ['--cwd', '/nosuch', 'true'], 125, "envctl: cwd '/nosuch' does not exist\n"],
    [
      'a time limit',
      ['--timeout', '200ms', 'sleep', '100'],
      124,
      'envctl: process was killed after 200 ms\n',
    ],
  ])('the exit code of %s', async (_, args, code, stderr) => {
    expect(await run('run', ...args)).toMatchObject({ code, stderr });
  });

  test('sets variables and the directory', async () => {
    const { stdout } = await run(
      'run',
      '-e',
      'A=1=2',
      '--env',
      'B=',
      '--cwd',
      '/tmp',
      'sh',
      '-c',
      'echo "$A,$B,$PWD"',
    );
    expect(stdout).toBe('1=2,,/tmp\n');
  });

  test('ends quietly when its reader has gone', async () => {
    const running = await envctlUntil(daemon.url, ['run', 'yes'], /y/);
    running.child.stdout?.destroy();
    expect(await running.result).toMatchObject({ code: 141, stderr: '' });
    await until('yes has been found', async () => {
      const left = (await processes()).filter(({ cmd }: { cmd: string }) => cmd === 'yes');
      for (const { pid } of left) await run('kill', '-s', 'KILL', String(pid));
      return true;
    });
  });

  test('^C is SIGINT for the process; the second one kills', async () => {
    const script = 'trap "echo caught" INT; echo ready; while :; do sleep 0.05; done';
    const running = await envctlUntil(daemon.url, ['run', 'bash', '-c', script], /ready/);
    running.child.kill('SIGINT');
    await until('it was caught', () => running.stdout().includes('caught'));
    running.child.kill('SIGINT');
    expect(await running.result).toMatchObject({ code: 137, stdout: 'ready\ncaught\n' });
  });

  test('^C before the daemon has told the start reaches the process that it has started', async () => {
    const told = Promise.withResolvers<void>();
    const beforeAnswer = async (path: string) => {
      if (path.endsWith('/Start')) await told.promise;
    };
    const { url } = await owned(startFront(daemon.url, { beforeAnswer }));
    const running = startEnvctl(url, ['run', '--tag', 'early', 'sleep', '1000']);
    const isThere = async () => (await processes()).some(({ tag }: { tag: string }) => tag === 'early');
    await until('it runs', isThere);
    running.child.kill('SIGINT');
    const hasEnded = () => running.child.exitCode !== null;
    await until('envctl has taken it', () => running.stderr().includes('^C again leaves') || hasEnded());
    told.resolve();
    expect(await running.result).toMatchObject({ code: 130 });
    expect(await isThere()).toBe(false);
  });

  test('the second ^C before the start leaves', async () => {
    const silent = createServer(() => {});
    await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => {
      silent.closeAllConnections();
      silent.close();
    });
    const asked = once(silent, 'request');
    const url = `http://127.0.0.1:${(silent.address() as AddressInfo).port}`;
    const running = startEnvctl(url, ['run', 'sleep', '1000']);
    await asked;
    running.child.kill('SIGINT');
    await until('envctl has taken it', () => running.stderr().includes('^C again leaves'));
    running.child.kill('SIGINT');
    expect(await running.result).toMatchObject({ code: 130 });
  });

  test('--json has one line per event', async () => {
    const { stdout } = await run('run', '--json', 'sh', '-c', 'echo a; exit 3');
    const events = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(events).toEqual([
      { event: 'started', pid: expect.any(Number) },
      { event: 'stdout', data: 'YQo=' },
      expect.objectContaining({
        event: 'end',
        exitCode: 3,
        exited: true,
        status: 'exit status 3',
        signal: null,
      }),
    ]);
  });

  test('--detach leaves the process running; ps, logs, attach, wait and kill find it by its tag', async () => {
    const script = 'echo first; read -r line; echo "got $line"; exit 5';
    const { stdout, code } = await run('run', '-di', '--tag', 'job 1', 'sh', '-c', script);
    const pid = Number(stdout);
    expect({ code, pid }).toEqual({ code: 0, pid: expect.any(Number) });
    expect(await processes()).toContainEqual({
      pid,
      state: expect.any(String),
      ageSeconds: expect.any(Number),
      tag: 'job 1',
      cmd: 'sh',
      args: ['-c', script],
      cwd: null,
    });
    expect((await run('ps')).stdout).toMatch(new RegExp(`^ *${pid} .* job 1  sh -c 'echo first;`, 'm'));
    await expect.poll(() => run('logs', 'job 1')).toMatchObject({ code: 0, stdout: 'first\n' });
    const waiting = startEnvctl(daemon.url, ['wait', String(pid), '--json']);
    const attached = await envctl(daemon.url, ['attach', 'job 1'], { input: 'this\n' });
    expect(attached).toMatchObject({ code: 5, stdout: 'first\ngot this\n' });
    expect(JSON.parse((await waiting.result).stdout)).toEqual({ pid, exitCode: 5 });
  });

  test('ps shows every process as a tree, and what processes use', async () => {
    const { stdout } = await run('run', '-d', '--tag', 'tree', 'sh', '-c', 'sleep 1000 & wait');
    const pid = Number(stdout);
    const child = await until('the child is there', async () => {
      const { processes: all } = JSON.parse((await run('ps', '-au', '--json')).stdout);
      // One that waits for a processor does not sleep yet.
      const isIt = (one: { parent: number; cmd: string; state: string }) =>
        one.parent === pid && one.cmd === 'sleep' && one.state === 'S';
      return all.find(isIt);
    });
    expect(child).toMatchObject({ tasks: 1, cpuSeconds: expect.any(Number) });
    const lines = (await run('ps', '--all')).stdout.split('\n');
    const columnOf = (of: number, command: string) => {
      const line = lines.find((text) => text.trim().startsWith(`${of} `)) ?? '';
      return line.indexOf(command);
    };
    expect(columnOf(child.pid, 'sleep 1000') - columnOf(pid, "sh -c 'sleep 1000 & wait'")).toBe(2);
    const [one] = JSON.parse((await run('ps', '--usage', '--json')).stdout).processes;
    expect(one).toMatchObject({ pid, tag: 'tree', cpuSeconds: expect.any(Number) });
    expect(one).not.toHaveProperty('user');
    await expect
      .poll(async () => (await run('ps', '-u')).stdout)
      .toMatch(/^ *PID +AGE +STATE +CPU +MEMORY +TASKS {2}TAG +COMMAND\n *\d+ +\d+[sm] +sleeping +0:00 /);
    await run('kill', 'tree');
  });

  test('kill takes signals by name and number, and says what is not there', async () => {
    const { stdout } = await run('run', '-d', 'sleep', '100');
    expect(await run('kill', '-s', 'USR1', stdout.trim())).toMatchObject({ code: 0 });
    expect(await run('wait', stdout.trim())).toMatchObject({ code: 138 });
    expect(await run('kill', 'nobody')).toMatchObject({
      code: 123,
      stderr: 'envctl: process with tag nobody not found\n',
    });
    expect((await run('kill', '-s', 'NOSUCH', '1')).code).toBe(120);
  });
});

describe('a lost connection', () => {
  test('run goes on where the output broke off', async () => {
    const relay = await owned(startRelay(daemon.port));
    // It does not end before the connection has broken off for the second time.
    const last = join(scratch(), 'last');
    const script = `for i in $(seq 1 60); do echo line $i; [ $i = 40 ] && until [ -e '${last}' ]; do sleep 0.05; done; sleep 0.01; done; exit 4`;
    const running = await envctlUntil(
      `http://127.0.0.1:${relay.port}`,
      ['run', 'bash', '-c', script],
      /line 10\n/,
    );
    const returns = () => running.stderr().match(/connected again, nothing was lost/g)?.length ?? 0;
    relay.reset();
    await until('more came', () => returns() === 1 && running.stdout().includes('line 30'));
    relay.reset();
    await until('it is connected again', () => returns() === 2);
    writeFileSync(last, '');
    const { code, stdout } = await running.result;
    expect(stdout).toBe(Array.from({ length: 60 }, (_, index) => `line ${index + 1}\n`).join(''));
    expect([code, returns()]).toEqual([4, 2]);
  });

  test('--keep: logs and wait know a process that the daemon has long forgotten', async () => {
    const keeping = await owned(startDaemon({ args: ['--output-directory=/tmp'] }));
    const gateway = await owned(startGateway());
    await gateway.register('box', keeping.port);
    const env = { ENVCTL_GATEWAY: gateway.url, ENVCTL_API_KEY: API_KEY, ENVCTL_SANDBOX: 'box' };
    const script = 'echo one; echo two; echo err >&2; exit 7';
    const start = ['run', '--detach', '--keep', '10m', '--tag', 'kept', 'sh', '-c', script];
    expect(await envctl('', start, { env })).toMatchObject({ code: 0, stderr: '' });
    const connect = { process: { selector: { case: 'tag', value: 'kept' } } } as const;
    // The daemon forgets a process 30 s after its end.
    await until('the process is forgotten', () =>
      transcribe(connectTo(keeping.url).process.connect(connect)).then(
        () => false,
        () => true,
      ),
    );
    const logs = (...options: string[]) => envctl(keeping.url, ['logs', ...options, 'kept']);
    for (const options of [[], ['--follow']])
      expect(await logs(...options)).toMatchObject({ code: 0, stdout: 'one\ntwo\n', stderr: 'err\n' });
    expect(await logs('--tail', '2')).toMatchObject({ code: 0, stdout: 'two\n', stderr: 'err\n' });
    for (const options of [[], ['--follow']])
      expect(await envctl('', ['logs', ...options, 'kept'], { env })).toMatchObject({
        ...{ code: 0, stdout: 'one\ntwo\n', stderr: 'err\n' },
      });
    expect(await envctl('', ['wait', 'kept'], { env })).toMatchObject({ code: 7, stdout: '', stderr: '' });
    expect(await envctl(keeping.url, ['wait', 'kept'])).toMatchObject({ code: 7, stdout: '', stderr: '' });
    expect((await envctl(keeping.url, ['logs', 'other'])).code).toBe(123);
  });

  test('--keep is refused where nothing is kept', async () => {
    const { code, stderr } = await run('run', '--keep', '1h', 'true');
    expect([code, stderr]).toEqual([
      125,
      expect.stringContaining('keeps no output: the daemon has no directory'),
    ]);
  });

  test('logs --follow too, and says what is not kept any more', async () => {
    const small = await owned(startDaemon({ args: ['--history-bytes=4096'] }));
    const script = 'head -c 100000 /dev/zero; echo; read -r _';
    await envctl(small.url, ['run', '-di', '--tag', 'big', 'sh', '-c', script]);
    const { bytes } = await until(
      'it has written more than is kept',
      () => envctl(small.url, ['logs', 'big']),
      ({ stderr }) => /\[\d+ bytes of output are not kept any more\]/.test(stderr),
    );
    expect(bytes.length).toBeLessThan(100_000);
    await envctl(small.url, ['kill', 'big']);
  });
});
