import { execFileSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { quoted } from '../../src/cli/output/quoted.ts';
import { scratch } from '../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../support/programs/daemon.ts';
import { EnvctlTerminal, envctl, envctlUntil } from '../support/programs/envctl.ts';
import { envctlCommand } from '../support/programs/programs.ts';
import { until } from '../support/until.ts';

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(() => daemon?.[Symbol.asyncDispose]());

const run = (...args: string[]) => envctl(daemon.url, args);

test('exec is run, with -u and -w', async () => {
  const result = await run('exec', '-u', 'root', '-w', '/', 'sh', '-c', 'id -un; pwd');
  expect(result).toMatchObject({ code: 0, stdout: 'root\n/\n' });
  expect(await run('run', '-w', '/', '-C', '/', 'true')).toMatchObject({ code: 120 });
});

test('cp -r and ls -lah are accepted', async () => {
  const tree = join(scratch(), 'tree');
  mkdirSync(tree);
  writeFileSync(join(tree, '.hidden'), '');
  expect(await run('cp', '-r', tree, `:${daemon.scratch}/copied`)).toMatchObject({ code: 0 });
  const { code, stdout } = await run('ls', '-lah', `${daemon.scratch}/copied`);
  expect(code).toBe(0);
  expect(stdout).toMatch(/^-rw.* 0 B .* \.hidden\n$/);
});

test('kill -9 takes a tag', async () => {
  expect(await run('run', '-d', '--tag', 'victim', 'sleep', '1000')).toMatchObject({ code: 0 });
  expect(await run('kill', '-9', 'victim')).toMatchObject({ code: 0 });
  expect(await run('wait', 'victim')).toMatchObject({ code: 137 });
  expect(await run('kill', '-9')).toMatchObject({ code: 120 });
});

test('--url takes a host with a port', async () => {
  const place = new URL(daemon.url).host;
  expect(await envctl('', ['--url', place, 'run', 'echo', 'roses'])).toMatchObject({ stdout: 'roses\n' });
});

test('shell -c runs a line', async () => {
  const terminal = new EnvctlTerminal(daemon.url, ['shell', '-c', 'echo $((6 * 7)); exit 3']);
  expect(await terminal.exit).toBe(3);
  expect(terminal.screen).toContain('42');
});

test('a shell whose input is a pipe reads it to the end', async () => {
  const input = 'echo roses; echo thorns >&2\nexit 3\n';
  expect(await envctl(daemon.url, ['shell'], { input })).toMatchObject({
    code: 3,
    stdout: 'roses\n',
    stderr: expect.stringContaining('thorns\n'),
  });
  expect(await envctl(daemon.url, ['shell'], { input: 'echo violets' })).toMatchObject({
    code: 0,
    stdout: 'violets\n',
  });
});

test('a tag of two processes is refused, with their pids', async () => {
  const start = async () => (await run('run', '-d', '--tag', 'twice', 'sleep', '1000')).stdout.trim();
  const pids = [await start(), await start()];
  for (const [command = '', ...options] of [['attach'], ['logs'], ['wait'], ['kill', '-9']]) {
    const { code, stderr } = await run(command, ...options, 'twice');
    expect(code).toBe(120);
    for (const pid of pids) expect(stderr).toContain(pid);
  }
  expect(await run('kill', '-9', ...pids)).toMatchObject({ code: 0 });
});

test('cp - and <(…) copy what comes by a pipe', async () => {
  const place = `${daemon.scratch}/of-a-pipe`;
  const input = 'x'.repeat(300_000);
  expect(await envctl(daemon.url, ['cp', '-q', '-', `:${place}`], { input })).toMatchObject({ code: 0 });
  expect((await run('cp', `:${place}`, '-')).stdout).toBe(input);
  const [node, program] = envctlCommand();
  const line = `"$0" "$1" cp -q <(echo roses) :${place} && "$0" "$1" cp :${place} -`;
  const env = { ...process.env, ENVCTL_URL: daemon.url };
  expect(execFileSync('bash', ['-c', line, node, program], { env, encoding: 'utf8' })).toBe('roses\n');
  const into = await envctl(daemon.url, ['cp', '-', `:${daemon.scratch}`], { input });
  expect(into).toMatchObject({ code: 120, stderr: expect.stringContaining('name the file') });
  expect(await run('cp', '-q', '-', '-')).toMatchObject({ code: 120 });
});

test('logs --tail shows the last lines, and goes on with -f', async () => {
  const line = 'seq 100; read x; echo last; printf end';
  await run('run', '-d', '-i', '--tag', 'counting', 'sh', '-c', line);
  const last = async () => (await run('logs', '--tail', '2', 'counting')).stdout;
  await until('it has counted', last, (lines) => lines === '99\n100\n');
  expect((await run('logs', '-n', '0', 'counting')).stdout).toBe('');
  const following = await envctlUntil(daemon.url, ['logs', '-f', '--tail', '1', 'counting'], /\n/);
  expect(following.stdout()).toBe('100\n');
  await envctl(daemon.url, ['attach', '--new', 'counting'], { input: 'x\n' });
  expect(await following.result).toMatchObject({ code: 0, stdout: '100\nlast\nend' });
  expect(await last()).toBe('last\nend');
});

test('a line of shell in one word is told how to run', async () => {
  for (const line of ['ls | head', 'echo "$HOME"', 'cd / && ls']) {
    const { code, stderr } = await run('run', line);
    expect(code).toBe(127);
    expect(stderr).toContain(`for a line of shell, run \`envctl run sh -c ${quoted(line)}\``);
  }
  expect((await run('run', 'nosuch')).stderr).not.toContain('sh -c');
});
