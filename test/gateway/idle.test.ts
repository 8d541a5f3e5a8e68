import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { Sandbox } from 'e2b';
import { expect, onTestFinished, test } from 'vitest';
import { startAgent } from '../support/programs/agent.ts';
import { startDaemon } from '../support/programs/daemon.ts';
import { API_KEY, startGateway, type TestGateway, toSandbox } from '../support/programs/gateway.ts';
import { owned } from '../support/programs/owned.ts';
import { init } from '../support/programs/sandbox.ts';
import { phase } from '../support/servers/hook.ts';
import { until } from '../support/until.ts';

/** Longer than a sandbox with an idle timeout of 1 s that nobody uses goes on. */
const IDLE_FOR_SURE_MS = 4000;
/** Between two uses of a sandbox a busy machine may need longer than the least idle timeout. */
const USED_S = 4;
const phaseOf = async (gateway: TestGateway, id = 'box') =>
  (await gateway.call(`GET /sandboxes/${id}`)).body.phase;
const start = (...args: readonly string[]) => owned(startGateway({ args: ['--hook=true', ...args] }));

/** Stands for a daemon without processes. `answer` may take its time, and null leaves a request open. */
async function startDaemonOf(
  answer: (request: IncomingMessage) => Promise<null | undefined>,
): Promise<number> {
  const server = createServer(async (request, response) => {
    if ((await answer(request)) === null) response.flushHeaders();
    else
      response.end(request.url?.startsWith('/freeze') ? '{"notFrozen":0,"failed":0,"unobservable":0}' : '{}');
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

test('a sandbox that nobody uses expires long before its deadline', async () => {
  // To whom asks for processes it says that there are none.
  const agent = await owned(startAgent('{}'));
  const gateway = await start();
  const { body } = await gateway.register('box', agent.port, { timeout: 3600, idleTimeout: 1 });
  expect(body.idleTimeout).toBe(1);
  await phase(gateway, 'box', 'paused');
  expect(agent.asked.slice(0, 2)).toEqual(['POST /process.Process/List', 'POST /freeze?maxWaitMs=5000']);
});

test('requests and operations on its time keep it awake, and look-ups do not', async () => {
  const agent = await owned(startAgent('{}'));
  const gateway = await start(`--idle-timeout=${USED_S}`);
  await gateway.register('box', agent.port, { timeout: 3600 });
  const isAwakeBy = async (use: () => Promise<unknown>) => {
    // Time itself is tested.
    for (const end = Date.now() + 2000 * USED_S; Date.now() < end; await delay(50)) {
      await use();
      expect(await phaseOf(gateway)).toBe('running');
    }
  };
  await isAwakeBy(() =>
    fetch(gateway.url, { headers: toSandbox('box') }).then((response) => response.text()),
  );
  await isAwakeBy(() => gateway.call('POST /sandboxes/box/timeout', { timeout: 3600 }));
  await isAwakeBy(() => gateway.call('POST /sandboxes/box/refreshes', { duration: 0 }));
  await isAwakeBy(() => gateway.call('POST /sandboxes/box/connect'));
  await phase(gateway, 'box', 'paused');
});

test('a stream keeps it awake until it ends', async () => {
  const port = await startDaemonOf(async ({ url }) => (url === '/stream' ? null : undefined));
  const gateway = await start();
  await gateway.register('box', port, { timeout: 3600, idleTimeout: 1 });
  const leaving = new AbortController();
  const stream = await fetch(`${gateway.url}/stream`, { headers: toSandbox('box'), signal: leaving.signal });
  // Time itself is tested.
  await delay(IDLE_FOR_SURE_MS);
  expect(await phaseOf(gateway)).toBe('running');
  leaving.abort();
  // A response that nobody holds would be closed as garbage.
  await expect(stream.text()).rejects.toThrow();
  await phase(gateway, 'box', 'paused');
});

test('a process keeps it awake, though its client has gone', async () => {
  const daemon = await owned(startDaemon());
  await init(daemon, { accessToken: 'token', defaultUser: 'root', envVars: { HOME: daemon.scratch } });
  const gateway = await start('--header-prefix=E2b');
  await gateway.register('box', daemon.port, { timeout: 3600, envdAccessToken: 'token' });
  const options = { apiKey: API_KEY, apiUrl: gateway.url, sandboxUrl: gateway.url };
  const sandbox = await Sandbox.connect('box', options);
  const command = await sandbox.commands.run('sleep 1000', { background: true, timeoutMs: 0 });
  await command.disconnect();
  await gateway.register('box', daemon.port, { timeout: 3600, envdAccessToken: 'token', idleTimeout: 1 });
  // Time itself is tested.
  await delay(IDLE_FOR_SURE_MS);
  expect(await phaseOf(gateway)).toBe('running');
  process.kill(command.pid, 'SIGKILL');
  await phase(gateway, 'box', 'paused');
});

test('one whose daemon does not say whether it has processes goes on until its deadline', async () => {
  const agent = await owned(startAgent('no JSON'));
  const gateway = await start();
  const began = performance.now();
  await gateway.register('box', agent.port, { timeout: 15, idleTimeout: 1 });
  // Time itself is tested.
  await delay(IDLE_FOR_SURE_MS);
  // It is asked again after the idle timeout, and no sooner.
  expect(agent.asked.slice(0, 4)).toContain('POST /process.Process/List');
  expect(agent.asked.length).toBeLessThanOrEqual((performance.now() - began) / 1000);
  expect(await phaseOf(gateway)).toBe('running');
  await phase(gateway, 'box', 'paused');
});

test('a request that comes while its daemon is asked keeps it awake', async () => {
  let asked = 0;
  const port = await startDaemonOf(async ({ url }) => {
    if (url !== '/process.Process/List') return;
    asked += 1;
    if (asked === 1) await fetch(gateway.url, { headers: toSandbox('box') }).then((one) => one.text());
  });
  const gateway = await start();
  await gateway.register('box', port, { timeout: 3600, idleTimeout: 1 });
  expect(await until('it is asked again', () => asked > 1)).toBe(true);
  await phase(gateway, 'box', 'paused');
});

test('a created one has the idle timeout of its client or of the gateway, from when it runs', async () => {
  const agent = await owned(startAgent('{}'));
  // The hook takes longer than the idle timeout.
  const hook = `sleep ${2 * USED_S}; echo '{"address":"127.0.0.1","port":${agent.port}}'`;
  const gateway = await start(`--idle-timeout=${USED_S}`, `--create-hook=${hook}`);
  const create = async (more = {}) => {
    const wanted = { templateID: 'base', timeout: 3600, autoPause: true, ...more };
    return (await gateway.call('POST /sandboxes', wanted)).body;
  };
  const [one, other] = await Promise.all([create(), create({ idleTimeout: 100 })]);
  expect([one.idleTimeout, other.idleTimeout]).toEqual([USED_S, 100]);
  // Time itself is tested.
  await delay(1000);
  expect(await phaseOf(gateway, one.sandboxID)).toBe('running');
  await phase(gateway, one.sandboxID, 'paused');
  expect(await phaseOf(gateway, other.sandboxID)).toBe('running');
});

test('a resumed one is used from then on', async () => {
  const agent = await owned(startAgent('{}'));
  const gateway = await start('--resume-hook=true');
  await gateway.register('box', agent.port, { timeout: 3600, idleTimeout: USED_S });
  await phase(gateway, 'box', 'paused');
  expect((await gateway.call('POST /sandboxes/box/resume', { timeout: 3600 })).status).toBe(201);
  // Time itself is tested.
  await delay(1000);
  expect(await phaseOf(gateway)).toBe('running');
  await phase(gateway, 'box', 'paused');
});
