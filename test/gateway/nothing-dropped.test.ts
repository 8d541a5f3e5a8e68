import { Sandbox, type SandboxOpts } from 'e2b';
import { expect, onTestFinished, test } from 'vitest';
import { type Agent, startAgent } from '../support/programs/agent.ts';
import { API_KEY, startGateway, type TestGateway } from '../support/programs/gateway.ts';
import { rejection } from '../support/programs/sandbox.ts';
import { phase } from '../support/servers/hook.ts';

/* What a client asks for is done, or refused with a sentence. */

async function scene(...args: readonly string[]): Promise<{ gateway: TestGateway; agent: Agent }> {
  const agent = await startAgent();
  const hook = `echo '{"address":"127.0.0.1","port":${agent.port}}'`;
  const hooks = ['hook', 'kill-hook', 'resume-hook'].map((name) => `--${name}=true`);
  const gateway = await startGateway({
    args: [`--create-hook=${hook}`, ...hooks, '--header-prefix=E2b', ...args],
  });
  onTestFinished(async () => {
    for (const each of [gateway, agent]) await each[Symbol.asyncDispose]();
  });
  return { gateway, agent };
}

const optionsOf = ({ url }: TestGateway) => ({
  apiKey: API_KEY,
  apiUrl: url,
  sandboxUrl: url,
  validateApiKey: false,
});

test.each([
  ['volumeMounts', { volumeMounts: [{ name: 'data', path: '/data' }] }],
  ['iam', { iam: { tokens: { a: { audience: 'b', tokenType: 'c' } } } }],
  ['mcp', { mcp: { browserbase: {} } }],
  ['network.denyOut', { network: { denyOut: ['0.0.0.0/0'] } }],
  ['allow_internet_access', { allow_internet_access: true }],
  ['allow_internet_access', { allow_internet_access: false }],
  ['autoResume.timeout', { autoResume: { enabled: true, timeout: 60 } }],
  ['somethingNew', { somethingNew: 1 }],
])('a creation with %s is 501 unless the create hook provides it', async (name, more) => {
  const { gateway } = await scene();
  const create = (at: TestGateway) => at.call('POST /v2/sandboxes', { templateID: 'base', ...more });
  const { status, body } = await create(gateway);
  expect([status, body.message]).toEqual([501, expect.stringContaining(`does not provide ${name}:`)]);
  const { gateway: other } = await scene(`--create-options=${name}`);
  expect((await create(other)).status).toBe(201);
});

test('a creation that is to be paused at its time is 501 where no hook pauses machines', async () => {
  await using agent = await startAgent();
  const hook = `echo '{"address":"127.0.0.1","port":${agent.port}}'`;
  await using gateway = await startGateway({ args: [`--create-hook=${hook}`, '--kill-hook=true'] });
  const create = (more: object) => gateway.call('POST /v2/sandboxes', { templateID: 'base', ...more });
  const { status, body } = await create({ autoPause: true });
  expect([status, body.message]).toEqual([501, expect.stringContaining('has no --hook')]);
  expect((await create({ autoPause: false })).status).toBe(201);
});

test('what asks for nothing is no reason to refuse', async () => {
  const { gateway } = await scene();
  const more = {
    volumeMounts: [],
    network: {},
    iam: null,
    mcp: null,
    allow_internet_access: null,
    secure: true,
  };
  expect((await gateway.call('POST /v2/sandboxes', { templateID: 'base', ...more })).status).toBe(201);
});

test('the published JavaScript client is told of what is not provided', async () => {
  const { gateway } = await scene();
  const options = optionsOf(gateway);
  const unprovided: readonly SandboxOpts[] = [
    { volumeMounts: { '/data': 'data' } },
    { network: { denyOut: ['0.0.0.0/0'] } },
    { allowInternetAccess: true },
    { lifecycle: { onTimeout: { action: 'pause', keepMemory: false } } },
  ];
  for (const more of unprovided)
    expect(String(await rejection(Sandbox.create('base', { ...options, ...more })))).toContain('501');
  const sandbox = await Sandbox.create('base', options);
  expect(await sandbox.pause()).toBe(true);
  const rebooted = Sandbox.connect(sandbox.sandboxId, { ...options, onResume: 'reboot' });
  expect(String(await rejection(rebooted))).toContain('501');
});

test.each(['connect', 'resume', 'pause'])('%s refuses what it does not know', async (operation) => {
  const { gateway, agent } = await scene();
  await gateway.register('box', agent.port, { timeout: 600 });
  for (const body of [{ memory: false }, { autoPause: true }]) {
    const answer = await gateway.call(`POST /sandboxes/box/${operation}`, body);
    expect([answer.status, answer.body.message]).toEqual([501, expect.stringContaining('leave')]);
  }
  expect((await gateway.call('GET /sandboxes/box')).body.phase).toBe('running');
});

test.each([
  ['timeout', { timeout: 900 }],
  ['refreshes', { duration: 900 }],
  ['refreshes', {}],
])('%s refuses what it does not know', async (operation, body) => {
  const { gateway, agent } = await scene();
  await gateway.register('box', agent.port, { timeout: 600 });
  const ask = (more: object) => gateway.call(`POST /sandboxes/box/${operation}`, { ...body, ...more });
  const { endAt } = (await gateway.call('GET /sandboxes/box')).body;
  for (const more of [{ autoPause: true }, { memory: true }, { seconds: 5 }]) {
    const [name] = Object.keys(more);
    const answer = await ask(more);
    expect([answer.status, answer.body.message]).toEqual([
      501,
      `this gateway does not provide ${name}: leave that out`,
    ]);
  }
  expect((await gateway.call('GET /sandboxes/box')).body.endAt).toBe(endAt);
  expect((await ask({ somethingNew: null })).status).toBe(204);
});

test.each([
  'secrets',
  'volumes',
  'snapshots',
  'v2/templates',
  'volumecontent/x/dir',
  'teams',
  'v3/templates',
])('the family of /%s is 501', async (path) => {
  const { gateway } = await scene();
  for (const method of ['GET', 'POST']) {
    const { status, body } = await gateway.call(`${method} /${path}`);
    expect([status, body.message]).toEqual([501, expect.stringContaining('has no operation')]);
  }
});

async function leftOf(gateway: TestGateway, id: string): Promise<number> {
  return (Date.parse((await gateway.call(`GET /sandboxes/${id}`)).body.endAt) - Date.now()) / 1000;
}

test('a pause keeps the time that is left, and a connection the time that it asks for', async () => {
  const { gateway, agent } = await scene('--default-timeout=5000');
  await gateway.register('box', agent.port, { timeout: 1000 });
  const pause = async () => expect((await gateway.call('POST /sandboxes/box/pause')).status).toBe(204);
  await pause();
  expect((await gateway.call('POST /sandboxes/box/resume')).status).toBe(201);
  expect(await leftOf(gateway, 'box')).toBeLessThan(1001);
  expect(await leftOf(gateway, 'box')).toBeGreaterThan(800);
  await pause();
  // A request resumes it in the same way.
  expect((await fetch(`${gateway.url}/health`, { headers: { 'e2b-sandbox-id': 'box' } })).status).toBe(200);
  expect(await leftOf(gateway, 'box')).toBeLessThan(1001);
  await pause();
  const asked = await Sandbox.connect('box', { ...optionsOf(gateway), timeoutMs: 200_000 });
  const left = ((await asked.getInfo()).endAt.getTime() - Date.now()) / 1000;
  expect(left).toBeLessThan(201);
  expect(left).toBeGreaterThan(100);
  // One that has expired had nothing left.
  await asked.setTimeout(0);
  await phase(gateway, 'box', 'paused');
  expect((await gateway.call('POST /sandboxes/box/resume')).status).toBe(201);
  expect(await leftOf(gateway, 'box')).toBeGreaterThan(4000);
});
