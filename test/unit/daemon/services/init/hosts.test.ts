import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { needs } from '../../../../support/machine/needs.ts';
import { scratch } from '../../../../support/machine/scratch.ts';
import { runStep } from '../../../../support/services/init-step.ts';

const HOSTS = '127.0.0.1\tlocalhost\n# a comment\n::1\tip6-localhost\n';

function setUp(content: string | null = HOSTS) {
  const file = join(scratch(), 'hosts');
  if (content !== null) writeFileSync(file, content);
  const run = async (hyperloopIP?: string) =>
    runStep('hosts entry', { hosts: { file, name: 'loop.test' } }, { hyperloopIP });
  return { file, run, read: () => readFileSync(file, 'utf8') };
}

test('adds a line, and replaces it in the next call', async () => {
  const { run, read } = setUp();
  await run('192.0.2.1');
  expect(read()).toBe(`${HOSTS}192.0.2.1\tloop.test # envd\n`);
  await run('2001:db8::1');
  expect(read()).toBe(`${HOSTS}2001:db8::1\tloop.test # envd\n`);
});

test('the same address again changes nothing, nor does a request without one', async () => {
  const { file, run } = setUp();
  await run('192.0.2.1');
  const { ino } = statSync(file);
  await run('192.0.2.1');
  await run();
  expect(statSync(file).ino).toBe(ino);
});

test.each([
  ['no file', null, ''],
  ['a file without a last newline', '127.0.0.1 localhost', '127.0.0.1 localhost\n'],
])('%s', async (_, content, kept) => {
  const { run, read } = setUp(content);
  await run('192.0.2.1');
  expect(read()).toBe(`${kept}192.0.2.1\tloop.test # envd\n`);
});

test('a bind-mounted file is written in place', async () => {
  needs('mounts');
  const { file, run, read } = setUp();
  execFileSync('mount', ['--bind', file, file]);
  onTestFinished(() => void execFileSync('umount', [file]));
  await run('192.0.2.1');
  expect(read()).toContain('192.0.2.1\tloop.test');
  expect(existsSync(`${file}.envd`)).toBe(false);
});

test.each(['localhost', '192.0.2.1 evil', '192.0.2.1\n192.0.2.2', '192.0.2'])(
  'refuses %j',
  async (address) => {
    const { run, read } = setUp();
    await expect(run(address)).rejects.toMatchObject({
      kind: 'invalid_argument',
      message: `hyperloopIP must be an IP address: '${address}'`,
    });
    expect(read()).toBe(HOSTS);
  },
);
