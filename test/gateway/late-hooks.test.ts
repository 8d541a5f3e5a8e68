import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { expect, onTestFinished, test } from 'vitest';
import { type Agent, startAgent } from '../support/programs/agent.ts';
import { type GatewayOptions, startGateway, type TestGateway } from '../support/programs/gateway.ts';
import { phase } from '../support/servers/hook.ts';
import { until } from '../support/until.ts';

interface Call {
  readonly event: string;
  readonly sandboxID: string;
  readonly address: string;
  readonly key: string;
  readonly response: ServerResponse;
}

interface Scene {
  readonly gateway: TestGateway;
  readonly agent: Agent;
  readonly calls: Call[];
  readonly options: GatewayOptions;
}

/** A gateway whose hooks are a URL that answers only when a test does. */
async function scene(): Promise<Scene> {
  const agent = await startAgent();
  const calls: Call[] = [];
  const hook = createServer(async (request, response) => {
    const told = JSON.parse(await text(request)) as Omit<Call, 'response' | 'key'>;
    calls.push({ ...told, key: String(request.headers['idempotency-key']), response });
  }).listen(0, '127.0.0.1');
  await once(hook, 'listening');
  const url = `http://127.0.0.1:${(hook.address() as AddressInfo).port}/`;
  const hooks = ['hook', 'create-hook', 'kill-hook', 'resume-hook'].map((name) => `--${name}=${url}`);
  const options = { args: [...hooks, '--hook-timeout=1', '--resume-wait=1'] };
  const gateway = await startGateway(options);
  onTestFinished(async () => {
    await gateway[Symbol.asyncDispose]();
    await agent[Symbol.asyncDispose]();
    hook.closeAllConnections();
    hook.close();
  });
  return { gateway, agent, calls, options };
}

const called = (calls: readonly Call[], event: string) =>
  until(`the hook was called to ${event}`, () => calls.find((each) => each.event === event));
const isLate = (gateway: TestGateway) =>
  until('the log tells that the hook is late', () =>
    gateway.log.some(({ msg }) => String(msg).startsWith('a hook has not ended within')),
  );

test('a machine that is made too late is removed when it comes', async () => {
  const { gateway, agent, calls } = await scene();
  const created = gateway.call('POST /v2/sandboxes', { templateID: 'base' });
  const { sandboxID, response } = await called(calls, 'create');
  expect((await created).status).toBe(502);
  expect(calls.map(({ event }) => event)).toEqual(['create']);
  response.end(JSON.stringify({ address: '127.0.0.1', port: agent.port }));
  const kill = await called(calls, 'kill');
  expect(kill).toMatchObject({ sandboxID, address: '127.0.0.1' });
  kill.response.end();
  await phase(gateway, sandboxID, 'gone');
  expect(agent.asked).toEqual([]);
});

test('a pause that comes too late is recorded, and called for once', async () => {
  const { gateway, agent, calls } = await scene();
  await gateway.register('box', agent.port, { timeout: 3600 });
  const paused = gateway.call('POST /sandboxes/box/pause');
  const { response } = await called(calls, 'expire');
  await isLate(gateway);
  response.end();
  expect((await paused).status).toBe(204);
  expect((await gateway.call('GET /sandboxes/box')).body.phase).toBe('paused');
  expect(calls.map(({ event }) => event)).toEqual(['expire']);
  expect(agent.asked).toEqual(['POST /freeze?maxWaitMs=5000', 'POST /collapse']);
});

test('a machine that is resumed too late runs', async () => {
  const { gateway, agent, calls } = await scene();
  await gateway.register('box', agent.port, { timeout: 3600 });
  const paused = gateway.call('POST /sandboxes/box/pause');
  (await called(calls, 'expire')).response.end();
  expect((await paused).status).toBe(204);
  const resumed = gateway.call('POST /sandboxes/box/resume');
  const { response } = await called(calls, 'resume');
  expect((await resumed).status).toBe(504);
  await isLate(gateway);
  response.end();
  await phase(gateway, 'box', 'running');
  expect(agent.asked.at(-1)).toBe('POST /unfreeze');
  expect(calls.map(({ event }) => event)).toEqual(['expire', 'resume']);
});
