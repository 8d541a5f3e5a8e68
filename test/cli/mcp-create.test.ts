import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { startMcp } from '../support/clients/mcp-client.ts';
import { scratch } from '../support/machine/scratch.ts';
import { endWithTests } from '../support/programs/end-with-tests.ts';
import { envctl } from '../support/programs/envctl.ts';
import { API_KEY, startGateway } from '../support/programs/gateway.ts';
import { endLoopbackMachines, loopbackCalls, loopbackHook } from '../support/programs/loopback-machines.ts';
import { owned } from '../support/programs/owned.ts';
import { envctlCommand } from '../support/programs/programs.ts';
import { until } from '../support/until.ts';

/** A machine is made and removed in this time, also where many others are. */

async function start(args: readonly string[] = []) {
  const directory = scratch();
  onTestFinished(() => endLoopbackMachines(directory));
  const hook = loopbackHook(directory);
  const hooks = ['create-hook', 'kill-hook'].map((name) => `--${name}=${hook}`);
  const gateway = await owned(startGateway({ args: hooks }));
  const env = { ENVCTL_GATEWAY: gateway.url, ENVCTL_API_KEY: API_KEY };
  const mcp = await startMcp('', ['--create', 'base', ...args], env);
  const sandboxes = async () => (await gateway.call('GET /sandboxes')).body as unknown as readonly unknown[];
  const events = () => loopbackCalls(directory).map(({ event }) => event);
  return { mcp, gateway, env, sandboxes, events };
}

test('a sandbox is created at the first call, and removed when the input ends', async () => {
  const { mcp, sandboxes, events } = await start(['--timeout', '10m']);
  await mcp.client.listTools();
  expect(await sandboxes()).toEqual([]);
  const calls = ['one', 'two'].map((word) => mcp.call('run_command', { command: `echo ${word}` }));
  expect((await Promise.all(calls)).map(({ quoted }) => quoted)).toEqual([['one\n'], ['two\n']]);
  expect(await sandboxes()).toHaveLength(1);
  await mcp.close();
  await until('it has been removed', async () => (await sandboxes()).length === 0);
  expect(events().sort()).toEqual(['create', 'kill']);
});

test('SIGTERM while it is being created leaves nothing behind', async () => {
  const { mcp, sandboxes, events } = await start();
  const call = mcp.call('run_command', { command: 'true' }).catch(() => 'left');
  await until('it is being created', async () => (await sandboxes()).length === 1);
  process.kill(mcp.pid, 'SIGTERM');
  expect(await call).toBe('left');
  const left = async () => ({ listed: await sandboxes(), events: events() });
  const isClean = ({ listed, events: all }: Awaited<ReturnType<typeof left>>) =>
    listed.length === 0 && all.includes('create') === all.includes('kill');
  await until('nothing is left', left, isClean);
});

test('a client that is gone without a word leaves nothing behind', async () => {
  const { gateway, sandboxes, env } = await start();
  const [node, program] = envctlCommand();
  const { PATH = '' } = process.env;
  const child = spawn(node, [program, 'mcp', '--create', 'base'], {
    ...{ stdio: ['pipe', 'pipe', 'inherit'], env: { ...env, PATH, HOME: '/dev/null/none' } },
  });
  endWithTests(child);
  const send = (message: object) => child.stdin?.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
  const clientInfo = { name: 'gone', version: '1' };
  const params = { protocolVersion: '2025-06-18', capabilities: {}, clientInfo };
  send({ id: 1, method: 'initialize', params });
  send({ method: 'notifications/initialized' });
  // The answer comes when nobody reads any more.
  const left = join(scratch(), 'left');
  const command = `until [ -e '${left}' ]; do sleep 0.05; done; echo hi`;
  send({ id: 2, method: 'tools/call', params: { name: 'run_command', arguments: { command } } });
  await until('it runs', async () => {
    const { body } = await gateway.call('GET /sandboxes?state=running');
    return (body as unknown as readonly { phase?: string }[]).some(({ phase }) => phase !== 'creating');
  });
  child.stdout?.destroy();
  const ended = once(child, 'exit');
  writeFileSync(left, '');
  await until('it has been removed', async () => (await sandboxes()).length === 0);
  expect((await ended)[0]).toBe(0);
});

test('SIGTERM removes it', async () => {
  const { mcp, sandboxes, events } = await start();
  await mcp.call('start_command', { command: 'sleep 98130' });
  process.kill(mcp.pid, 'SIGTERM');
  await until('it has been removed', async () => (await sandboxes()).length === 0);
  expect(events().sort()).toEqual(['create', 'kill']);
});

test('what the gateway refuses is told, and the next call tries again', async () => {
  const gateway = await owned(startGateway());
  const env = { ENVCTL_GATEWAY: gateway.url, ENVCTL_API_KEY: API_KEY };
  const mcp = await startMcp('', ['--create', 'base'], env);
  for (let count = 0; count < 2; count++)
    expect(await mcp.call('read_file', { path: '/x' })).toMatchObject({
      ...{ isError: true, words: expect.stringContaining('--create-hook') },
    });
  expect((await envctl('', ['mcp', '--create', 'base'])).code).toBe(120);
  expect((await envctl('', ['mcp', '--create', 'base', '--sandbox', 'x'], { env })).code).toBe(120);
});
