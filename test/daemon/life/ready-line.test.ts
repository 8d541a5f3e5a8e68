import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, constants, openSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { ReadStream } from 'node:tty';
import { expect, onTestFinished, test } from 'vitest';
import { native } from '../../../src/daemon/linux/system/native.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { endWithTests } from '../../support/programs/end-with-tests.ts';
import { daemonCommand } from '../../support/programs/programs.ts';

const { PATH, NODE_COMPILE_CACHE } = process.env;

/** Starts a daemon whose standard output is this descriptor or a pipe. */
function start(output: number | 'pipe', host = '127.0.0.1'): ChildProcess {
  const [program, ...before] = daemonCommand();
  const args = [`--host=${host}`, '--port=0', '--no-cgroups', `--runtime-directory=${scratch()}`];
  const child = spawn(program, [...before, ...args], {
    env: { PATH, NODE_COMPILE_CACHE, ENVD_METADATA_SERVICE: 'off' },
    stdio: ['ignore', output, 'inherit'],
  });
  endWithTests(child);
  onTestFinished(() => void child.kill('SIGKILL'));
  return child;
}

/** The lines of a daemon that writes to a terminal, up to the first one that is not JSON. */
async function linesOnTerminal(host: string): Promise<string[]> {
  const { master, slave } = native.openTerminal(200, 24);
  const output = openSync(slave, constants.O_RDWR | constants.O_NOCTTY);
  start(output, host);
  closeSync(output);
  const terminal = new ReadStream(master);
  onTestFinished(() => void terminal.destroy());
  const lines: string[] = [];
  for await (const line of createInterface({ input: terminal })) {
    lines.push(line.trimEnd());
    if (!line.startsWith('{')) return lines;
  }
  return lines;
}

test.each([
  ['127.0.0.1', '127.0.0.1'],
  ['::1', '[::1]'],
])('on a terminal, the start of a daemon at %s ends with a command to try', async (host, shown) => {
  const lines = await linesOnTerminal(host);
  const { msg, port } = JSON.parse(lines.at(-2) ?? '');
  expect(msg).toBe('ready');
  expect(lines.at(-1)).toBe(`ready: try curl http://${shown}:${port}/health`);
  const [url = ''] = /http:.*/.exec(lines.at(-1) ?? '') ?? [];
  expect((await fetch(url)).status).toBe(204);
});

test('in a pipe, every line is JSON', async () => {
  const child = start('pipe');
  if (!child.stdout) throw new Error('standard output is no pipe');
  const messages: string[] = [];
  for await (const line of createInterface({ input: child.stdout })) {
    messages.push(JSON.parse(line).msg);
    if (messages.at(-1) === 'ready') child.kill('SIGTERM');
  }
  expect(messages).toEqual(expect.arrayContaining(['ready', 'stopping', 'stopped']));
});
