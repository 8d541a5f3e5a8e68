import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, constants, openSync, readFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { scratch } from '../../support/machine/scratch.ts';
import { daemonCommand, gatewayCommand } from '../../support/programs/programs.ts';
import { freePort } from '../../support/servers/free-port.ts';
import { until } from '../../support/until.ts';

/** CPU time of a process, in ticks. Source: proc_pid_stat(5). */
function ticks(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8')
    .replace(/^.*\) /s, '')
    .split(' ');
  return Number(fields[11]) + Number(fields[12]);
}

test.each([
  {
    program: 'gateway',
    command: gatewayCommand(),
    args: (directory: string) => [
      '--api-key=k',
      `--registry=${join(directory, 'registry.db')}`,
      `--hook-directory=${join(directory, 'hooks')}`,
    ],
  },
  { program: 'daemon', command: daemonCommand(), args: () => ['--no-cgroups'] },
])(
  'a log on a full disk: the $program serves, stays idle without calls, and stops on a signal',
  async (each) => {
    const directory = scratch();
    const port = await freePort();
    // Every write to /dev/full fails with ENOSPC (full(4)).
    const full = openSync('/dev/full', 'w');
    const [program, ...leading] = each.command;
    const args = [...leading, '--host=127.0.0.1', `--port=${port}`, ...each.args(directory)];
    const child = spawn(program, args, {
      env: { PATH: process.env.PATH, TMPDIR: directory },
      stdio: ['ignore', full, 'inherit'],
    });
    closeSync(full);
    onTestFinished(() => void child.kill('SIGKILL'));
    const exited = once(child, 'exit');
    const health = each.program === 'gateway' ? '/gateway/health' : '/health';
    const ask = () =>
      fetch(`http://127.0.0.1:${port}${health}`).then(
        ({ status }) => status,
        () => null,
      );
    await until('it answers', ask);
    for (let call = 0; call < 50; call++) {
      await fetch(`http://127.0.0.1:${port}/no/such/${call}`).then((response) => response.text());
    }
    // The CPU time stops growing, unless each error of the log causes another one.
    let before = ticks(child.pid ?? 0);
    await until('it rests', async () => {
      await new Promise((resolve) => setTimeout(resolve, 300));
      const now = ticks(child.pid ?? 0);
      const rests = now - before <= 3;
      before = now;
      return rests;
    });
    expect(await ask()).toBe(204);
    child.kill('SIGTERM');
    expect(await exited).toEqual([0, null]);
  },
);

test('a log whose reader has stalled: the daemon serves, and stops on a signal', async () => {
  const directory = scratch();
  const port = await freePort();
  const fifo = join(directory, 'log');
  execFileSync('mkfifo', [fifo]);
  const unread = openSync(fifo, constants.O_RDWR | constants.O_NONBLOCK);
  onTestFinished(() => closeSync(unread));
  const output = openSync(fifo, 'w');
  const [program, ...leading] = daemonCommand();
  const child = spawn(program, [...leading, '--host=127.0.0.1', `--port=${port}`, '--no-cgroups'], {
    env: { PATH: process.env.PATH, TMPDIR: directory },
    stdio: ['ignore', output, 'inherit'],
  });
  closeSync(output);
  onTestFinished(() => void child.kill('SIGKILL'));
  const exited = once(child, 'exit');
  const ask = () =>
    fetch(`http://127.0.0.1:${port}/health`).then(
      ({ status }) => status,
      () => null,
    );
  await until('it answers', ask);
  const fill = (bytes: number) => {
    while (writeSync(unread, Buffer.alloc(bytes)) > 0);
  };
  for (const bytes of [4096, 1]) expect(() => fill(bytes)).toThrow('EAGAIN');
  for (let call = 0; call < 50; call++) {
    await fetch(`http://127.0.0.1:${port}/no/such/${call}`).then((response) => response.text());
  }
  expect(await ask()).toBe(204);
  child.kill('SIGTERM');
  expect(await exited).toEqual([0, null]);
});
