import { join } from 'node:path';
import { createClient } from '@redis/client';
import { describe, expect, onTestFinished, test } from 'vitest';
import { scratch } from '../support/machine/scratch.ts';
import { type Agent, startAgent } from '../support/programs/agent.ts';
import {
  type GatewayOptions,
  startGateway,
  type TestGateway,
  toSandbox,
} from '../support/programs/gateway.ts';
import { hookCalls, phase, record } from '../support/servers/hook.ts';
import { startRedis } from '../support/servers/redis-server.ts';
import { until } from '../support/until.ts';

async function start(options: GatewayOptions): Promise<TestGateway> {
  const gateway = await startGateway(options);
  onTestFinished(() => gateway[Symbol.asyncDispose]());
  return gateway;
}

async function agentOf(): Promise<Agent> {
  const agent = await startAgent();
  onTestFinished(() => agent[Symbol.asyncDispose]());
  return agent;
}

const forgotten = (gateways: readonly TestGateway[]) =>
  gateways.flatMap(({ log }) => log.filter(({ msg }) => String(msg).startsWith('a sandbox was forgotten')));

describe.each(['embedded', 'redis'])('the %s registry', (kind) => {
  test('forgets what has been paused for too long, once and without a trace', async () => {
    const redis = kind === 'redis' ? await startRedis() : null;
    if (redis) onTestFinished(() => redis[Symbol.asyncDispose]());
    const agent = await agentOf();
    const args = ['--hook=true', '--keep-paused=2', ...(redis ? [`--redis=${redis.url}`] : [])];
    const first = await start({ args });
    const gateways = [first, ...(redis ? [await start({ args })] : [])];
    await first.register('brief', agent.port, { timeout: 3600, owner: 'ada' });
    await first.register('running', agent.port, { timeout: 3600 });
    await first.call('POST /sandboxes/brief/pause');
    const { body } = await first.call('GET /sandboxes/brief');
    expect(body).toMatchObject({ state: 'paused', machinePaused: true });
    expect(Date.parse(body.forgetAt) - Date.now()).toBeLessThanOrEqual(2000);
    for (const each of gateways) await phase(each, 'brief', 'gone');
    expect(Date.now()).toBeGreaterThanOrEqual(Date.parse(body.forgetAt));
    await until('it is logged', () => forgotten(gateways).length > 0);
    expect(forgotten(gateways)).toMatchObject([{ sandboxID: 'brief' }]);
    expect((await first.call('GET /sandboxes')).body).toMatchObject([{ sandboxID: 'running' }]);
    expect((await fetch(first.url, { headers: toSandbox('brief') })).status).toBe(502);
    if (redis) {
      const client = createClient({ url: redis.url });
      await client.connect();
      onTestFinished(() => client.destroy());
      await first.call('DELETE /sandboxes/running');
      // Events, daemons without a record, and the time for which sandboxes have run are kept, and bounded by themselves.
      const kept = ['events', 'key', 'left-daemons', 'usage'].map((name) => `{envd-gateway}:${name}`);
      expect((await client.keys('*')).toSorted()).toEqual(kept);
    }
  });
});

test.each(['embedded', 'redis'])(
  'what an earlier gateway has paused for ever is forgotten, too: %s',
  async (kind) => {
    const redis = kind === 'redis' ? await startRedis() : null;
    if (redis) onTestFinished(() => redis[Symbol.asyncDispose]());
    const agent = await agentOf();
    const directory = scratch();
    const args = ['--hook=true', ...(redis ? [`--redis=${redis.url}`] : [])];
    const earlier = await start({ directory, args: [...args, '--keep-paused=0'] });
    await earlier.register('old', agent.port, { timeout: 3600 });
    await earlier.register('running', agent.port, { timeout: 3600 });
    await earlier.call('POST /sandboxes/old/pause');
    expect((await earlier.call('GET /sandboxes/old')).body).not.toHaveProperty('forgetAt');
    await earlier[Symbol.asyncDispose]();
    const gateway = await start({ directory, args: [...args, '--keep-paused=3'] });
    await phase(gateway, 'old', 'gone');
    expect((await gateway.call('GET /sandboxes/running')).body).toMatchObject({ phase: 'running' });
  },
);

test('one that is resumed or registered again is not forgotten', async () => {
  const agent = await agentOf();
  const gateway = await start({ args: ['--hook=true', '--resume-hook=true', '--keep-paused=4'] });
  for (const id of ['resumed', 'registered']) await gateway.register(id, agent.port, { timeout: 3600 });
  const pause = async (id: string) => {
    await gateway.call(`POST /sandboxes/${id}/pause`);
    return Date.parse((await gateway.call(`GET /sandboxes/${id}`)).body.forgetAt);
  };
  await pause('resumed');
  expect((await fetch(gateway.url, { headers: toSandbox('resumed') })).status).toBe(200);
  const forgetAt = await pause('registered');
  await gateway.register('registered', agent.port, { timeout: 3600 });
  // Time itself is tested.
  await new Promise((resolve) => setTimeout(resolve, forgetAt + 500 - Date.now()));
  for (const id of ['resumed', 'registered']) {
    const { body } = await gateway.call(`GET /sandboxes/${id}`);
    expect(body).toMatchObject({ phase: 'running' });
    for (const member of ['forgetAt', 'machinePaused']) expect(body).not.toHaveProperty(member);
  }
  expect(forgotten([gateway])).toEqual([]);
});

test('without a hook no machine is said to be paused or removed', async () => {
  const agent = await agentOf();
  const gateway = await start({});
  await gateway.register('one', agent.port, { timeout: 1 });
  await gateway.register('two', agent.port, { timeout: 1, onExpiry: 'remove' });
  await phase(gateway, 'one', 'paused');
  await phase(gateway, 'two', 'gone');
  expect((await gateway.call('GET /sandboxes/one')).body).toMatchObject({ machinePaused: false });
  const ends = () => gateway.log.filter(({ msg }) => msg === 'a sandbox has expired');
  await until('both are logged', () => ends().length === 2);
  expect(ends()).toMatchObject([{ outcome: 'frozen' }, { outcome: 'frozen' }]);
  const { text } = await gateway.call('GET /gateway/metrics');
  expect(text).toContain('envd_gateway_expiries_total{outcome="paused"} 0\n');
  expect(text).toContain('envd_gateway_expiries_total{outcome="frozen"} 2\n');
  expect(text).toContain('envd_gateway_hooks_total 0\n');
});

test('a resume whose guest cannot be thawed is given up: the hook pauses it again', async () => {
  const [agent, calls] = [await agentOf(), join(scratch(), 'calls')];
  const hooks = [`--hook=${record(calls)}`, `--resume-hook=${record(calls)}`];
  const gateway = await start({ args: [...hooks, '--default-timeout=2'] });
  // A resumed sandbox gets the time that it had left.
  await gateway.register('one', agent.port, { timeout: 4 });
  await gateway.call('POST /sandboxes/one/pause');
  agent.thaws = false;
  const { status } = await fetch(gateway.url, { headers: toSandbox('one') });
  expect(status).toBe(502);
  await until('it is paused again', () => hookCalls(calls).length === 3);
  await phase(gateway, 'one', 'paused');
  expect(hookCalls(calls).map(({ event }) => event)).toEqual(['expire', 'resume', 'expire']);
  expect(new Set(hookCalls(calls).map(({ expiryID }) => expiryID)).size).toBe(3);
  agent.thaws = true;
  expect((await fetch(gateway.url, { headers: toSandbox('one') })).status).toBe(200);
});
