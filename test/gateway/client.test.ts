import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { Sandbox, SandboxNotFoundError, TimeoutError } from 'e2b';
import { spawn as openTerminal } from 'node-pty';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { needs } from '../support/machine/needs.ts';
import { startDaemon, type TestDaemon } from '../support/programs/daemon.ts';
import { API_KEY, startGateway, type TestGateway } from '../support/programs/gateway.ts';
import { init, rejection, Seen } from '../support/programs/sandbox.ts';
import { phase } from '../support/servers/hook.ts';

let gateway: TestGateway;
let daemon: TestDaemon;
let directory: string;
const TOKEN = 'the-token-of-the-guest';

/** The published client as a user sets it up: not in debug mode, both URLs are the gateway's. */
const options = () => ({ apiKey: API_KEY, apiUrl: gateway.url, sandboxUrl: gateway.url });

beforeAll(async () => {
  [gateway, daemon] = await Promise.all([startGateway({ args: ['--header-prefix=E2b'] }), startDaemon()]);
  directory = join(daemon.scratch, 'work');
  mkdirSync(directory);
  await init(daemon, { accessToken: TOKEN, defaultUser: 'root', envVars: { HOME: directory } });
  await gateway.register('box', daemon.port, { envdAccessToken: TOKEN, metadata: { owner: 'ada lovelace' } });
});

afterAll(async () => {
  for (const each of [gateway, daemon]) await each[Symbol.asyncDispose]();
});

test('connects, with the token that it is given', async () => {
  const sandbox = await Sandbox.connect('box', options());
  expect(await sandbox.isRunning()).toBe(true);
  const { stdout, exitCode } = await sandbox.commands.run('echo $HOME; cat', { stdin: false });
  expect([stdout, exitCode]).toEqual([`${directory}\n`, 0]);
});

test('commands stream, files are read and written, directories watched', async () => {
  const sandbox = await Sandbox.connect('box', options());
  const seen = new Seen<string>();
  await sandbox.commands.run('for i in 1 2 3; do echo $i; sleep 0.05; done', { onStdout: seen.add });
  expect(seen.items.join('')).toBe('1\n2\n3\n');
  const events = new Seen<{ readonly name: string }>();
  const watch = await sandbox.files.watchDir(directory, events.add);
  await sandbox.files.write(join(directory, 'poem'), 'roses\n', { metadata: { by: 'ada' } });
  await events.until((items) => items.some(({ name }) => name === 'poem'));
  await watch.stop();
  expect(await sandbox.files.read(join(directory, 'poem'))).toBe('roses\n');
  expect((await sandbox.files.list(directory)).map(({ name }) => name)).toContain('poem');
});

test('a terminal takes input', async () => {
  const { pty } = await Sandbox.connect('box', options());
  const shown = new Seen<Uint8Array>();
  const shell = await pty.create({ cols: 80, rows: 24, onData: shown.add });
  await pty.sendInput(shell.pid, new TextEncoder().encode('echo $((40 + 2)); exit\n'));
  expect(await shell.wait()).toMatchObject({ exitCode: 0 });
  expect(String(Buffer.concat(shown.items))).toContain('42\r\n');
});

test('the command-line client connects a terminal', async () => {
  needs('the published command-line client');
  const env = { E2B_API_KEY: API_KEY, E2B_API_URL: gateway.url, E2B_SANDBOX_URL: gateway.url };
  const terminal = openTerminal('e2b', ['sandbox', 'connect', 'box'], { env: { ...process.env, ...env } });
  const ended = new Promise<number>((resolve) => terminal.onExit(({ exitCode }) => resolve(exitCode)));
  const shown = new Seen<string>();
  terminal.onData(shown.add);
  const shows = (text: string) => shown.until((items) => items.join('').includes(text));
  await shows('Terminal connecting');
  terminal.write('echo $((40 + 2))-in-the-sandbox; exit\r');
  await shows('42-in-the-sandbox');
  expect(await ended).toBe(0);
});

test('is listed, and shows its information', async () => {
  const sandbox = await Sandbox.connect('box', options());
  const info = await sandbox.getInfo();
  expect(info).toMatchObject({ sandboxId: 'box', state: 'running', metadata: { owner: 'ada lovelace' } });
  const query = { metadata: { owner: 'ada lovelace' }, state: ['running' as const] };
  const listed = await Sandbox.list({ ...options(), query }).nextItems();
  expect(listed.map(({ sandboxId }) => sandboxId)).toEqual(['box']);
  const none = Sandbox.list({ ...options(), query: { state: ['paused'] } });
  expect(await none.nextItems()).toEqual([]);
});

test('an unknown id and a wrong key are refused', async () => {
  await expect(Sandbox.connect('nobody', options())).rejects.toThrow(/nobody not found/);
  await expect(Sandbox.connect('box', { ...options(), apiKey: 'wrong' })).rejects.toThrow(/unauthorized/);
  expect(await Sandbox.kill('nobody', options())).toBe(false);
});

test('sets the timeout, sees the sandbox expire, and gets the reason', async () => {
  const sandbox = await Sandbox.connect('box', options());
  await sandbox.setTimeout(60_000);
  const left = (await sandbox.getInfo()).endAt.getTime() - Date.now();
  expect(left).toBeGreaterThan(30_000);
  expect(left).toBeLessThanOrEqual(60_000);
  const running = await sandbox.commands.run('sleep 1000', { background: true, timeoutMs: 0 });
  const end = rejection(running.wait());
  await sandbox.setTimeout(0);
  await phase(gateway, 'box', 'paused');
  expect(await end).toBeInstanceOf(TimeoutError);
  expect(await sandbox.isRunning()).toBe(false);
  expect(await rejection(sandbox.commands.run('true'))).toBeInstanceOf(SandboxNotFoundError);
  expect(String(await rejection(sandbox.files.read('/etc/hostname')))).toContain("sandbox 'box' is paused");
  await expect(Sandbox.connect('box', options())).rejects.toThrow(/409: sandbox 'box' is paused/);
  expect(await sandbox.kill()).toBe(true);
});
