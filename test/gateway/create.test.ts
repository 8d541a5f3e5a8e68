import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { CommandExitError, Sandbox, SandboxNotFoundError } from 'e2b';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { needs } from '../support/machine/needs.ts';
import { runs } from '../support/machine/proc.ts';
import { API_KEY, startGateway, type TestGateway } from '../support/programs/gateway.ts';
import { endLoopbackMachines, loopbackCalls, loopbackHook } from '../support/programs/loopback-machines.ts';
import { rejection } from '../support/programs/sandbox.ts';
import { phase } from '../support/servers/hook.ts';
import { until } from '../support/until.ts';

let gateway: TestGateway;
let machines: string;

/** The published client, of a user who has a key of his own. */
const options = (apiKey = 'key-of-ada') => ({
  apiKey,
  apiUrl: gateway.url,
  sandboxUrl: gateway.url,
  validateApiKey: false,
});

beforeAll(async () => {
  machines = mkdtempSync(join(tmpdir(), 'envd-machines-'));
  const keys = join(machines, 'keys');
  writeFileSync(keys, `platform ${API_KEY}-2\nclient ada key-of-ada\nclient eve key-of-eve\n`);
  const hook = loopbackHook(machines);
  gateway = await startGateway({
    args: [
      ...['hook', 'create-hook', 'kill-hook', 'resume-hook'].map((name) => `--${name}=${hook}`),
      ...['--header-prefix=E2b', `--key-file=${keys}`, '--create-options=allow_internet_access,network'],
    ],
  });
});

afterAll(async () => {
  await gateway[Symbol.asyncDispose]();
  endLoopbackMachines(machines);
  rmSync(machines, { recursive: true, force: true });
});

const isAlive = (id: string) => runs(Number(readFileSync(join(machines, `${id}.pid`), 'utf8')));

test("the published client's first example: create, run, write, read, list, kill", async () => {
  const sandbox = await Sandbox.create('base', {
    ...options(),
    ...{
      timeoutMs: 120_000,
      envs: { GREETING: 'hello', SECRET: 'of the client' },
      metadata: { user: 'ada lovelace' },
    },
  });
  const { sandboxId: id } = sandbox;
  expect(id).toMatch(/^[a-z][a-z0-9]{19}$/);
  const { stdout } = await sandbox.commands.run('echo $GREETING $OF_THE_HOOK');
  expect(stdout).toBe('hello yes\n');
  await sandbox.files.write('poem.txt', 'roses');
  expect(await sandbox.files.read('poem.txt')).toBe('roses');
  expect(await rejection(sandbox.commands.run('exit 3'))).toBeInstanceOf(CommandExitError);
  const info = await sandbox.getInfo();
  expect(info).toMatchObject({
    sandboxId: id,
    templateId: 'base',
    metadata: { user: 'ada lovelace' },
    state: 'running',
  });
  expect(info.lifecycle).toEqual({ onTimeout: 'kill', autoResume: false });
  expect(info.endAt.getTime() - Date.now()).toBeGreaterThan(100_000);
  const listed = await Sandbox.list({
    ...options(),
    query: { metadata: { user: 'ada lovelace' } },
  }).nextItems();
  expect(listed.map(({ sandboxId }) => sandboxId)).toEqual([id]);
  const again = await Sandbox.connect(id, options());
  expect((await again.commands.run('echo $SECRET')).stdout).toBe('of the client\n');
  await sandbox.setTimeout(60_000);
  // Who has no token reaches nothing.
  const bare = await fetch(`${gateway.url}/envs`, { headers: { 'e2b-sandbox-id': id } });
  expect(bare.status).toBe(401);
  expect(await Sandbox.kill(id, options('key-of-eve'))).toBe(false);
  expect(isAlive(id)).toBe(true);
  expect(await sandbox.kill()).toBe(true);
  await until('the machine is gone', () => !isAlive(id));
  expect(await sandbox.isRunning()).toBe(false);
  const [told] = loopbackCalls(machines).filter(
    ({ sandboxID, event }) => sandboxID === id && event === 'create',
  );
  expect(told).toMatchObject({
    templateID: 'base',
    timeout: 120,
    owner: 'ada',
    metadata: { user: 'ada lovelace' },
  });
  expect(JSON.stringify(told)).not.toContain('of the client');
});

const PYTHON = `
import sys
from e2b import Sandbox
sandbox = Sandbox.create("base", timeout=120, envs={"GREETING": "hello"}, metadata={"user": "ada"}, validate_api_key=False)
print(sandbox.commands.run("echo $GREETING").stdout.strip())
sandbox.files.write("poem.txt", "roses")
print(sandbox.files.read("poem.txt"))
print(sandbox.get_info(validate_api_key=False).metadata["user"])
same = Sandbox.connect(sandbox.sandbox_id, validate_api_key=False)
print(same.is_running(), same.kill(validate_api_key=False), same.is_running())
`;

test("the published Python client's first example", async () => {
  needs('the published Python client');
  const env = { E2B_API_KEY: 'key-of-ada', E2B_API_URL: gateway.url, E2B_SANDBOX_URL: gateway.url };
  const { stdout } = await promisify(execFile)('python3', ['-c', PYTHON], {
    env: { ...process.env, ...env },
  });
  expect(stdout.split('\n')).toEqual(['hello', 'roses', 'ada', 'True True False', '']);
});

test('a sandbox that is created is paused and resumed, by the client and by a request', async () => {
  const lifecycle = { onTimeout: 'pause', autoResume: true } as const;
  const sandbox = await Sandbox.create({ ...options(), timeoutMs: 60_000, lifecycle });
  const { sandboxId: id } = sandbox;
  await sandbox.commands.run('echo kept >kept');
  expect(await Sandbox.pause(id, options())).toBe(true);
  expect(await Sandbox.pause(id, options())).toBe(false);
  expect((await sandbox.getInfo()).state).toBe('paused');
  const resumed = await Sandbox.connect(id, { ...options(), timeoutMs: 60_000 });
  expect((await resumed.commands.run('cat kept')).stdout).toBe('kept\n');
  await sandbox.setTimeout(0);
  await phase(gateway, id, 'paused');
  expect((await sandbox.commands.run('cat kept')).stdout).toBe('kept\n');
  expect(await sandbox.kill()).toBe(true);
});

test('a sandbox that would be removed at its time is paused and resumed before', async () => {
  const sandbox = await Sandbox.create({ ...options(), timeoutMs: 60_000 });
  await sandbox.commands.run('echo kept >kept');
  expect(await Sandbox.pause(sandbox.sandboxId, options())).toBe(true);
  const resumed = await Sandbox.connect(sandbox.sandboxId, { ...options(), timeoutMs: 60_000 });
  expect((await resumed.commands.run('cat kept')).stdout).toBe('kept\n');
  expect((await resumed.getInfo()).lifecycle).toMatchObject({ onTimeout: 'kill' });
  await resumed.setTimeout(0);
  await phase(gateway, sandbox.sandboxId, 'gone');
});

test('both paths take the shape of the published API', async () => {
  const body = {
    templateID: 'base',
    timeout: 60,
    secure: true,
    autoPause: true,
    allow_internet_access: false,
  };
  for (const path of ['/sandboxes', '/v2/sandboxes']) {
    const { status, body: made } = await gateway.call(`POST ${path}`, {
      ...body,
      network: { denyOut: ['0.0.0.0/0'] },
    });
    expect(status).toBe(201);
    expect(made).toMatchObject({ templateID: 'base', clientID: '', phase: 'running', onExpiry: 'pause' });
    expect(made.envdAccessToken).toMatch(/^[0-9a-f]{64}$/);
    const told = loopbackCalls(machines).find(({ sandboxID }) => sandboxID === made.sandboxID);
    expect(told?.request).toMatchObject({
      allow_internet_access: false,
      network: { denyOut: ['0.0.0.0/0'] },
    });
    expect((await gateway.call(`DELETE /sandboxes/${made.sandboxID}`)).status).toBe(204);
  }
  for (const path of ['/sandboxes', '/v2/sandboxes']) {
    const refuse = async (wrong: object) => {
      const { status, body: told } = await gateway.call(`POST ${path}`, { ...body, ...wrong });
      return [status, told.message];
    };
    expect(await refuse({ timeout: -1 })).toEqual([400, 'body/timeout must be >= 0']);
    expect(await refuse({ templateID: 'a\nb' })).toEqual([400, expect.stringContaining('body/templateID')]);
    expect(await refuse({ envVars: { a: 1 } })).toEqual([400, 'body/envVars/a must be string']);
    expect(await refuse({ metadata: { a: 'x'.repeat(17_000) } })).toEqual([
      400,
      expect.stringContaining('metadata'),
    ]);
    for (const network of [{ httpsPorts: [443] }])
      expect(await refuse({ network })).toEqual([
        501,
        expect.stringContaining(`network.${Object.keys(network)[0]}`),
      ]);
    expect(await refuse({ autoPauseMemory: false })).toEqual([
      501,
      expect.stringContaining('autoPauseMemory'),
    ]);
  }
});

test('what the hook refuses is told to the client, why it has failed is not', async () => {
  const failed = async (template: string) => String(await rejection(Sandbox.create(template, options())));
  expect(await failed('missing')).toContain("template 'missing' is not known");
  expect(await failed('broken')).toContain('the log of the gateway says why');
  const told = () => gateway.log.filter(({ step }) => step === 'create').map(({ reason }) => String(reason));
  await until('the log says why', () => told().at(-1)?.includes('exit code 7') ?? false);
  const isGone = async () => (await gateway.call('GET /sandboxes')).body.length === 0;
  await until('the kill hook has removed what there was', isGone);
});

test('a client removes what it has created, and nothing that the platform has registered', async () => {
  await gateway.register('registered', 1, { owner: 'ada', timeout: 600 });
  const ada = { 'x-api-key': 'key-of-ada' };
  expect((await gateway.call('DELETE /sandboxes/registered', undefined, ada)).status).toBe(403);
  expect(
    (await gateway.call('DELETE /sandboxes/registered', undefined, { 'x-api-key': 'key-of-eve' })).status,
  ).toBe(404);
  expect((await gateway.call('POST /sandboxes', { sandboxID: 'a', address: '127.0.0.1' }, ada)).status).toBe(
    403,
  );
  expect((await gateway.call('DELETE /sandboxes/registered')).status).toBe(204);
});

test('what this gateway has not is 501', async () => {
  await gateway.register('box', 1, { timeout: 600 });
  for (const operation of [
    ...[
      'GET /sandboxes/box/logs',
      'GET /v2/sandboxes/box/logs',
      'POST /sandboxes/box/snapshots',
      'GET /snapshots',
    ],
    ...['POST /sandboxes/box/fork', 'PUT /sandboxes/box/network', 'GET /templates', 'GET /sandboxes/metrics'],
  ])
    expect([operation, (await gateway.call(operation)).status]).toEqual([operation, 501]);
  const sandbox = await Sandbox.connect('box', options(API_KEY));
  expect(String(await rejection(sandbox.createSnapshot()))).toContain('501');
  expect(await rejection(Sandbox.connect('none', options()))).toBeInstanceOf(SandboxNotFoundError);
  await gateway.call('DELETE /sandboxes/box');
});
