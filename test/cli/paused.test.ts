import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { startDaemon, type TestDaemon } from '../support/programs/daemon.ts';
import { EnvctlTerminal, envctl, envctlUntil } from '../support/programs/envctl.ts';
import { API_KEY, startGateway, type TestGateway } from '../support/programs/gateway.ts';
import { until } from '../support/until.ts';

/* A command that runs while its sandbox is paused. The hooks do nothing: the guest goes on, and any request would resume it. */

let daemon: TestDaemon;
let gateway: TestGateway;
beforeAll(async () => {
  const args = ['--hook=true', '--resume-hook=true'];
  [daemon, gateway] = await Promise.all([startDaemon(), startGateway({ args })]);
});
afterAll(async () => {
  for (const each of [gateway, daemon]) await each?.[Symbol.asyncDispose]();
});
let box = '';
let count = 0;
beforeEach(async () => {
  box = `box-${++count}`;
  gateway.log.length = 0;
  await fetch(`${daemon.url}/unfreeze`, { method: 'POST' });
  await gateway.register(box, daemon.port, { timeout: 3600, onExpiry: 'pause' });
});

const env = () => ({ ENVCTL_GATEWAY: gateway.url, ENVCTL_SANDBOX: box, ENVCTL_API_KEY: API_KEY });
const change = async (operation: 'pause' | 'resume') =>
  expect((await gateway.call(`POST /sandboxes/${box}/${operation}`)).status).toBeLessThan(300);
const state = async () => (await gateway.call(`GET /sandboxes/${box}`)).body.state;

const TICKS = ['sh', '-c', 'i=0; while :; do i=$((i + 1)); echo tick $i; sleep 0.1; done'];

describe('a command whose sandbox is paused does not wake it', () => {
  const commands: readonly (readonly [name: string, args: readonly string[], seen: RegExp])[] = [
    ['run', ['run', ...TICKS], /tick 2/],
    ['attach', ['attach', 'ticks'], /tick 2/],
    ['logs -f', ['logs', '-f', 'ticks'], /tick 2/],
    ['top -w', ['top', '-w', '--interval', '200ms'], /PID[\s\S]*PID/],
    ['metrics -w', ['metrics', '-w', '--interval', '200ms'], /cpu[\s\S]*cpu/],
  ];
  test.each(commands)('%s: it waits, says so, and goes on after the resume', async (name, args, seen) => {
    if (name !== 'run') await envctl('', ['run', '-d', '--tag', 'ticks', ...TICKS], { env: env() });
    const running = await envctlUntil('', args, seen, { env: env() });
    await change('pause');
    await until('it says so', () => running.stderr().includes('is paused; waiting'));
    const so = running.stdout().length;
    // Several of its looks pass, and none of them wakes the sandbox.
    await until('it has looked', () => gateway.log.filter(({ status }) => status === 502).length >= 3);
    expect(await state()).toBe('paused');
    expect(running.stderr().match(/is paused/g)).toHaveLength(1);
    await change('resume');
    await until('it goes on', () => seen.test(running.stdout().slice(so)));
    running.child.kill('SIGKILL');
    await envctl('', ['kill', '-9', 'ticks'], { env: env() });
  });

  test('wait', async () => {
    await envctl('', ['run', '-d', '-i', '--tag', 'end', 'sh', '-c', 'read x; exit 5'], { env: env() });
    const streams = async () => {
      const metrics = await fetch(`${daemon.url}/metrics`, {
        headers: { accept: 'text/plain; version=0.0.4' },
      });
      return /^envd_streams (\d+)$/m.exec(await metrics.text())?.[1];
    };
    await until('those of before are gone', async () => (await streams()) === '0');
    const running = await envctlUntil('', ['wait', 'end', '--json'], /^/, { env: env() });
    await until('it is connected', async () => (await streams()) === '1');
    await change('pause');
    await until('it says so', () => running.stderr().includes('is paused; waiting'));
    expect(await state()).toBe('paused');
    await change('resume');
    await until('it goes on', () => running.stderr().includes('connected again'));
    await envctl('', ['attach', 'end'], { env: env(), input: 'x\n' });
    expect((await running.result).code).toBe(5);
  });

  test('a shell, also when somebody types', async () => {
    const terminal = new EnvctlTerminal('', ['shell', '--shell', '/bin/sh', '-e', 'PS1=$ '], env());
    await terminal.shows(/[#$>] ?$/);
    await change('pause');
    await terminal.shows(/is paused; waiting/);
    const from = terminal.screen.length;
    terminal.type('echo "[$((6 * 7))]"\r');
    const refused = () => gateway.log.filter(({ status }) => status === 502).length;
    const before = refused();
    await until('it has looked', () => refused() > before + 2);
    expect(await state()).toBe('paused');
    await change('resume');
    await terminal.shows(/\[42\]/, from);
    terminal.type('exit\r');
    expect(await terminal.exit).toBe(0);
  });
});

test('--when-paused end ends the command, and wake resumes the sandbox', async () => {
  const ending = await envctlUntil('', ['run', '--when-paused', 'end', ...TICKS], /tick 2/, { env: env() });
  await change('pause');
  expect(await ending.result).toMatchObject({
    code: 121,
    stderr: expect.stringContaining(`sandbox '${box}' is `),
  });
  expect(await state()).toBe('paused');
  await change('resume');
  const waking = await envctlUntil('', ['run', '--when-paused', 'wake', ...TICKS], /tick 2/, { env: env() });
  await change('pause');
  await until('it runs again', async () => (await state()) === 'running');
  await until('it goes on', () => /connected again/.test(waking.stderr()));
});

test('the first call of a command wakes a paused sandbox', async () => {
  await change('pause');
  expect(await envctl('', ['run', 'echo', 'roses'], { env: env() })).toMatchObject({ stdout: 'roses\n' });
});

test('a command whose sandbox is removed ends', async () => {
  const running = await envctlUntil('', ['run', ...TICKS], /tick 2/, { env: env() });
  await gateway.call(`DELETE /sandboxes/${box}`);
  expect(await running.result).toMatchObject({ code: 123, stderr: expect.stringContaining('was not found') });
});
