import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { scratch } from '../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../support/programs/daemon.ts';
import { EnvctlTerminal, envctl } from '../support/programs/envctl.ts';

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
