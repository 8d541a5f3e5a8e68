import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingHttpHeaders, type IncomingMessage, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { Sandbox } from 'e2b';
import { expect, onTestFinished, test } from 'vitest';
import { scratch } from '../support/machine/scratch.ts';
import { type Agent, startAgent } from '../support/programs/agent.ts';
import { startDaemon } from '../support/programs/daemon.ts';
import { API_KEY, startGateway, type TestGateway, toSandbox } from '../support/programs/gateway.ts';
import { startRawSandbox } from '../support/programs/raw-sandbox.ts';
import { init } from '../support/programs/sandbox.ts';
import { hookCalls, phase, record } from '../support/servers/hook.ts';
import { until } from '../support/until.ts';

/* Pause, kill, and what hooks are told; test/gateway/resume.test.ts has resumes. */

interface Scene {
  readonly gateway: TestGateway;
  readonly agent: Agent;
  readonly directory: string;
  readonly calls: string;
}

/** @param scripts what each hook does besides writing its request, by its flag */
async function scene(
  scripts: Readonly<Record<string, string>>,
  args: readonly string[] = [],
): Promise<Scene> {
  const directory = scratch();
  const calls = join(directory, 'calls');
  const hooks = Object.entries(scripts).map(
    ([flag, script]) => `--${flag}=${record(calls)}; cd '${directory}'; ${script}`,
  );
  const [gateway, agent] = await Promise.all([startGateway({ args: [...hooks, ...args] }), startAgent()]);
  onTestFinished(async () => {
    for (const each of [gateway, agent]) await each[Symbol.asyncDispose]();
  });
  await gateway.register('box', agent.port, { timeout: 3600, metadata: { vm: '7' } });
  return { gateway, agent, directory, calls };
}

const eventsIn = (calls: string) => hookCalls(calls).map(({ event, outcome }) => `${event} ${outcome}`);
const health = (gateway: TestGateway) => fetch(`${gateway.url}/health`, { headers: toSandbox('box') });
const WAITS_FOR = (file: string) => `while [ ! -e ${file} ]; do sleep 0.02; done`;

test('a pause goes the way of an expiry, and is answered when the machine is paused', async () => {
  const { gateway, agent, calls } = await scene({ hook: 'true' });
  expect((await gateway.call('POST /sandboxes/box/pause', { memory: true })).status).toBe(204);
  expect(agent.asked).toEqual(['POST /freeze?maxWaitMs=5000', 'POST /collapse']);
  expect(eventsIn(calls)).toEqual(['expire pause']);
  expect((await gateway.call('GET /sandboxes/box')).body).toMatchObject({ state: 'paused', phase: 'paused' });
  expect((await gateway.call('POST /sandboxes/box/pause')).status).toBe(409);
  expect((await gateway.call('POST /sandboxes/nobody/pause')).status).toBe(404);
  const disk = await gateway.call('POST /sandboxes/box/pause', { memory: false });
  expect(disk.body).toMatchObject({ code: 501, message: expect.stringContaining('with their memory only') });
  expect((await gateway.call('POST /sandboxes/box/pause', { memory: 'no' })).status).toBe(400);
});

test('a pause of what is being paused already is answered when that is done', async () => {
  const { gateway, directory, calls } = await scene({ hook: WAITS_FOR('go') });
  await gateway.call('POST /sandboxes/box/timeout', { timeout: 0 });
  await until('the hook runs', () => eventsIn(calls).length > 0);
  const paused = gateway.call('POST /sandboxes/box/pause');
  const second = gateway.call('POST /sandboxes/box/pause');
  writeFileSync(join(directory, 'go'), '');
  for (const answer of [await paused, await second]) expect([204, 409]).toContain(answer.status);
  expect(eventsIn(calls)).toEqual(['expire pause']);
});

test('a sandbox that would be removed when it expires is paused when that is asked for', async () => {
  const { gateway, agent, calls } = await scene({ hook: 'true' });
  await gateway.register('brief', agent.port, { timeout: 3600, onExpiry: 'remove' });
  expect((await gateway.call('POST /sandboxes/brief/pause')).status).toBe(204);
  expect(eventsIn(calls)).toEqual(['expire pause']);
  // Registered again, it is what its registration says.
  await gateway.register('brief', agent.port, { timeout: 0, onExpiry: 'remove' });
  await phase(gateway, 'brief', 'gone');
  expect(eventsIn(calls)).toEqual(['expire pause', 'expire remove']);
});

test('a pause that fails is said to have failed, and the sandbox goes on until its time is up', async () => {
  const { gateway, calls } = await scene({ hook: 'false' });
  const { endAt } = (await gateway.call('GET /sandboxes/box')).body;
  const { body } = await gateway.call('POST /sandboxes/box/pause');
  expect(body).toEqual({
    code: 502,
    message: "sandbox 'box' could not be paused and goes on: the log of the gateway says why",
  });
  await phase(gateway, 'box', 'running');
  expect((await health(gateway)).status).toBe(200);
  expect((await gateway.call('GET /sandboxes/box')).body).toMatchObject({ endAt, failures: 1 });
  expect(eventsIn(calls)).toEqual(['expire pause']);
});

test('a guest that cannot be frozen is not paused, and goes on', async () => {
  const { gateway, calls } = await scene({ hook: 'true' });
  await using dead = await startRawSandbox((socket) => socket.destroy());
  for (const onExpiry of ['pause', 'remove']) {
    await gateway.register(onExpiry, dead.port, { timeout: 3600, onExpiry });
    expect((await gateway.call(`POST /sandboxes/${onExpiry}/pause`)).status).toBe(502);
  }
  expect(eventsIn(calls)).toEqual([]);
});

test('a guest that offers no freeze is paused at once, without one', async () => {
  const { gateway, agent, calls } = await scene({ hook: 'true' });
  agent.freezes = false;
  expect((await gateway.call('POST /sandboxes/box/pause')).status).toBe(204);
  expect(hookCalls(calls)).toMatchObject([{ outcome: 'pause', attempt: 1, freeze: null, collapse: {} }]);
});

test('a longer time to live calls a pause off before the hook runs', async () => {
  const { gateway } = await scene({ hook: 'true' });
  let isAsked = false;
  let freeze = () => {};
  await using slow = await startRawSandbox((socket, head) => {
    const answer = () =>
      socket.end('HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{"notFrozen":0,"failed":0,"unobservable":0}');
    if (head.includes('/freeze')) {
      isAsked = true;
      freeze = answer;
    } else answer();
  });
  await gateway.register('slow', slow.port, { timeout: 3600 });
  const paused = gateway.call('POST /sandboxes/slow/pause');
  await until('it is being frozen', () => isAsked);
  const longer = gateway.call('POST /sandboxes/slow/timeout', { timeout: 600 });
  await until('that is recorded', async () => {
    const { body } = await gateway.call('GET /sandboxes/slow');
    return Date.parse(body.endAt) > Date.now();
  });
  freeze();
  expect((await longer).status).toBe(204);
  expect((await paused).status).toBe(502);
  expect((await gateway.call('GET /sandboxes/slow')).body).toMatchObject({ phase: 'running' });
});

/** Resolves when the gateway has the request, which it says with `100 Continue`. */
async function killAgain(
  { url }: TestGateway,
  id: string,
): Promise<{ readonly response: Promise<IncomingMessage> }> {
  const headers = { 'x-api-key': API_KEY, expect: '100-continue' };
  const sent = request(`${url}/sandboxes/${id}`, { method: 'DELETE', headers });
  const response = once(sent, 'response').then(
    ([message]: IncomingMessage[]) => message?.resume() as IncomingMessage,
  );
  sent.flushHeaders();
  await once(sent, 'continue');
  sent.end();
  return { response };
}

test('a kill calls its hook once, closes what is open, and is answered when the machine is gone', async () => {
  const { gateway, directory, calls } = await scene({ 'kill-hook': WAITS_FOR('go') });
  const killed = gateway.call('DELETE /sandboxes/box');
  await phase(gateway, 'box', 'removing');
  await until('the hook runs', () => eventsIn(calls).length > 0);
  expect((await health(gateway)).status).toBe(502);
  expect((await gateway.call('POST /sandboxes/box/timeout', { timeout: 60 })).status).toBe(404);
  const again = await gateway.call('POST /sandboxes', { sandboxID: 'box', address: '127.0.0.1' });
  expect([again.status, again.body.message]).toEqual([
    409,
    expect.stringContaining('in its phase (removing)'),
  ]);
  const second = await killAgain(gateway, 'box');
  writeFileSync(join(directory, 'go'), '');
  expect([(await killed).status, (await second.response).statusCode]).toEqual([204, 204]);
  expect((await gateway.call('DELETE /sandboxes/box')).status).toBe(404);
  expect(hookCalls(calls)).toMatchObject([
    { event: 'kill', outcome: 'remove', sandboxID: 'box', metadata: { vm: '7' } },
  ]);
  // The record is gone before the disk has that, and only then it is counted.
  await until('it is counted', async () =>
    (await gateway.call('GET /gateway/metrics')).text.includes('envd_gateway_kills_total 1\n'),
  );
});

test('a kill hook that fails is told, and tried again', async () => {
  const { gateway, directory, calls } = await scene({ 'kill-hook': '[ -e gone ]' });
  const { body } = await gateway.call('DELETE /sandboxes/box');
  expect(body).toMatchObject({
    code: 502,
    message: expect.stringMatching(/not removed yet: the kill hook failed/),
  });
  const { body: record } = await gateway.call('GET /sandboxes/box');
  expect(record.phase).toBe('removing');
  // It may have been tried again by now.
  expect(record.failures).toBeGreaterThanOrEqual(1);
  writeFileSync(join(directory, 'gone'), '');
  expect([204, 404]).toContain((await gateway.call('DELETE /sandboxes/box')).status);
  await phase(gateway, 'box', 'gone');
  expect(eventsIn(calls).length).toBeGreaterThanOrEqual(2);
  expect(new Set(eventsIn(calls))).toEqual(new Set(['kill remove']));
});

test('a kill while another hook runs waits for it', async () => {
  const { gateway, directory, calls } = await scene({ hook: WAITS_FOR('go'), 'kill-hook': 'true' });
  const paused = gateway.call('POST /sandboxes/box/pause');
  await until('the first hook runs', () => eventsIn(calls).length > 0);
  const killed = gateway.call('DELETE /sandboxes/box');
  await until('that is recorded', async () => {
    const again = await gateway.call('POST /sandboxes', { sandboxID: 'box', address: '127.0.0.1' });
    return again.status === 409;
  });
  expect(eventsIn(calls)).toEqual(['expire pause']);
  writeFileSync(join(directory, 'go'), '');
  expect((await killed).status).toBe(204);
  expect([404, 502]).toContain((await paused).status);
  expect(eventsIn(calls)).toEqual(['expire pause', 'kill remove']);
});

test('a gateway that is killed while the kill hook runs: the next one goes on, and the hook has run once', async () => {
  const { gateway, directory, calls } = await scene({ 'kill-hook': WAITS_FOR('go') });
  const lost = gateway.call('DELETE /sandboxes/box').catch(() => 'lost');
  await until('the hook runs', () => eventsIn(calls).length > 0);
  await gateway.kill();
  expect(await lost).toBe('lost');
  const args = [`--kill-hook=${record(calls)}`];
  await using next = await startGateway({ directory: gateway.directory, args });
  await phase(next, 'box', 'removing');
  writeFileSync(join(directory, 'go'), '');
  await phase(next, 'box', 'gone');
  expect(eventsIn(calls)).toEqual(['kill remove']);
});

test('commands have the event in their environment', async () => {
  const say = 'echo "$EVENT $OUTCOME $SANDBOX_ID" >>said';
  const { gateway, directory } = await scene({ hook: say, 'resume-hook': say, 'kill-hook': say });
  await gateway.call('POST /sandboxes/box/pause');
  expect((await health(gateway)).status).toBe(200);
  await gateway.call('DELETE /sandboxes/box');
  const said = readFileSync(join(directory, 'said'), 'utf8');
  expect(said).toBe('expire pause box\nresume resume box\nkill remove box\n');
});

test('requests to URLs are signed as Standard Webhooks says, by each secret', async () => {
  const got: { readonly headers: IncomingHttpHeaders; readonly body: string }[] = [];
  const server = createServer(async (request, response) => {
    got.push({ headers: request.headers, body: await text(request) });
    response.writeHead(204).end();
  });
  onTestFinished(() => void server.close());
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`;
  const keys = [Buffer.alloc(24, 'old'), Buffer.alloc(32, 'new')];
  const secrets = keys.map((key) => `whsec_${key.toString('base64')}`).join(',');
  const hooks = ['hook', 'resume-hook', 'kill-hook'].map((name) => `--${name}=${url}`);
  const { gateway } = await scene({}, [...hooks, `--hook-secret=${secrets}`]);
  await gateway.call('POST /sandboxes/box/pause');
  expect((await health(gateway)).status).toBe(200);
  await gateway.call('DELETE /sandboxes/box');
  expect(got.map(({ body }) => JSON.parse(body).event)).toEqual(['expire', 'resume', 'kill']);
  for (const { headers, body } of got) {
    const id = headers['webhook-id'];
    const at = headers['webhook-timestamp'];
    expect(id).toBe(JSON.parse(body).expiryID);
    expect(headers['idempotency-key']).toBe(id);
    expect(Math.abs(Number(at) - Date.now() / 1000)).toBeLessThan(60);
    const signatures = keys.map((key) => {
      const signature = createHmac('sha256', key).update(`${id}.${at}.${body}`).digest('base64');
      return `v1,${signature}`;
    });
    expect(headers['webhook-signature']).toBe(signatures.join(' '));
  }
  expect(new Set(got.map(({ headers }) => headers['webhook-id'])).size).toBe(3);
});

test('the published client pauses, resumes, measures and kills', async () => {
  await using daemon = await startDaemon();
  const directory = join(daemon.scratch, 'work');
  mkdirSync(directory);
  await init(daemon, { accessToken: 'guest', defaultUser: 'root', envVars: { HOME: directory } });
  const all = { hook: 'true', 'resume-hook': 'true', 'kill-hook': 'true' };
  const { gateway, calls } = await scene(all, ['--header-prefix=E2b']);
  const told = { templateID: 'base', cpuCount: 2, memoryMB: 512, diskSizeMB: 1024 };
  await gateway.register('real', daemon.port, { envdAccessToken: 'guest', timeout: 3600, ...told });
  const options = { apiKey: API_KEY, apiUrl: gateway.url, sandboxUrl: gateway.url };
  const sandbox = await Sandbox.connect('real', options);
  await sandbox.commands.run('echo kept >kept');
  expect(await sandbox.pause()).toBe(true);
  expect(await sandbox.pause()).toBe(false);
  expect(await sandbox.getMetrics()).toEqual([]);
  expect(await sandbox.getInfo()).toMatchObject({
    state: 'paused',
    templateId: 'base',
    cpuCount: 2,
    memoryMB: 512,
  });
  // Nothing but a request brings it back.
  expect(await sandbox.files.read('kept')).toBe('kept\n');
  expect((await sandbox.getInfo()).lifecycle).toEqual({ onTimeout: 'pause', autoResume: true });
  expect(await sandbox.getMetrics()).toMatchObject([
    { cpuCount: expect.any(Number), memTotal: expect.any(Number) },
  ]);
  expect(await sandbox.pause()).toBe(true);
  const again = await Sandbox.connect('real', { ...options, timeoutMs: 600_000 });
  expect((await again.commands.run('cat kept')).stdout).toBe('kept\n');
  expect(await again.kill()).toBe(true);
  expect(await again.kill()).toBe(false);
  const events = ['expire pause', 'resume resume', 'expire pause', 'resume resume', 'kill remove'];
  expect(eventsIn(calls)).toEqual(events);
  expect(await Sandbox.create('base', options).catch(String)).toContain('501');
});

test('a URL that cannot pause a sandbox says why, and that sentence reaches the client', async () => {
  const answers = [
    [501, '{"code":501,"message":"there is no disk"}'],
    [503, '{"code":503,"message":"later"}'],
    [501, 'not here'],
    [204, ''],
  ] as const;
  let asked = 0;
  const server = createServer(async (request, response) => {
    await text(request);
    const [status, body] = answers[asked++] ?? [500, ''];
    response.writeHead(status).end(body);
  });
  onTestFinished(() => void server.close());
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { gateway } = await scene({}, [`--hook=http://127.0.0.1:${(server.address() as AddressInfo).port}`]);
  const pause = async () => {
    const { status, body } = await gateway.call('POST /sandboxes/box/pause');
    await phase(gateway, 'box', status === 204 ? 'paused' : 'running');
    return [status, body?.message];
  };
  const goesOn = "sandbox 'box' cannot be paused and goes on";
  expect(await pause()).toEqual([501, `${goesOn}: there is no disk`]);
  expect(await pause()).toEqual([502, expect.stringContaining('the log of the gateway says why')]);
  expect(await pause()).toEqual([501, `${goesOn}: not here`]);
  expect((await pause())[0]).toBe(204);
});
