import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { expect, onTestFinished, test } from 'vitest';
import { scratch } from '../support/machine/scratch.ts';
import { startAgent } from '../support/programs/agent.ts';
import { startGateway, type TestGateway } from '../support/programs/gateway.ts';
import { startGuests } from '../support/programs/guests.ts';
import { phase } from '../support/servers/hook.ts';
import { startRedis } from '../support/servers/redis-server.ts';
import { until } from '../support/until.ts';

const eventsOf = async (gateway: TestGateway) =>
  (await gateway.call('GET /events?follow=false')).text
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line) as { sandboxID: string; event: string; reason: string });

test('a host that is drained gets no sandbox, and what is there is paused or removed', async () => {
  await using guests = await startGuests(4);
  await using gateway = await startGateway({ args: ['--hook=true', '--kill-hook=true'] });
  const [a = 0, b = 0, c = 0, d = 0] = guests.ports;
  await gateway.register('a', a, { host: 'node-1', timeout: 600, cpuCount: 2, memoryMB: 512 });
  await gateway.register('b', b, { host: 'node-1', timeout: 600, cpuCount: 1, memoryMB: 256 });
  await gateway.register('c', c, { host: 'node-2', timeout: 600 });
  expect((await gateway.call('GET /hosts')).body).toEqual([
    { host: 'node-1', drain: false, sandboxes: { running: 2 }, cpuCount: 3, memoryMB: 768 },
    { host: 'node-2', drain: false, sandboxes: { running: 1 }, cpuCount: 0, memoryMB: 0 },
  ]);
  const drained = await gateway.call('PATCH /hosts/node-1', { drain: true, sandboxes: 'pause' });
  expect([drained.status, drained.body]).toEqual([200, { host: 'node-1', drain: true, begun: 2 }]);
  await phase(gateway, 'a', 'paused');
  await phase(gateway, 'b', 'paused');
  const refused = await gateway.call('POST /sandboxes', {
    ...{ sandboxID: 'd', address: '127.0.0.1', port: d, host: 'node-1' },
  });
  expect([refused.status, refused.body.message]).toEqual([
    409,
    "host 'node-1' is being drained: register the sandbox at another one",
  ]);
  expect((await gateway.call('GET /hosts')).body[0]).toMatchObject({
    ...{ host: 'node-1', drain: true, sandboxes: { paused: 2 }, cpuCount: 0 },
  });
  expect((await gateway.call('GET /sandboxes?host=node-1')).body).toHaveLength(2);
  await gateway.call('PATCH /hosts/node-2', { drain: true, sandboxes: 'remove' });
  await phase(gateway, 'c', 'gone');
  expect((await gateway.call('GET /sandboxes/a')).status).toBe(200);
  const ends = (await eventsOf(gateway)).filter(({ reason }) => reason === 'drain');
  expect(ends.map(({ sandboxID, event }) => `${sandboxID} ${event}`).toSorted()).toEqual([
    ...['a paused', 'b paused', 'c removed'],
  ]);
  expect((await gateway.call('PATCH /hosts/node-1', { drain: false })).body.begun).toBe(0);
  expect((await gateway.register('d', d, { host: 'node-1' })).status).toBe(201);
});

test('a drain that is malformed, or that no hook can do, is refused', async () => {
  await using gateway = await startGateway();
  const patch = async (body: unknown) => (await gateway.call('PATCH /hosts/node-1', body)).status;
  expect(await patch({})).toBe(400);
  expect(await patch({ drain: 'yes' })).toBe(400);
  expect(await patch({ drain: true, sandboxes: 'stop' })).toBe(400);
  expect(await patch({ drain: false, sandboxes: 'pause' })).toBe(400);
  expect(await patch({ drain: true, sandboxes: 'pause' })).toBe(501);
  expect(await patch({ drain: true, sandboxes: 'remove' })).toBe(501);
  expect((await gateway.call('GET /hosts')).body).toEqual([]);
});

test('the create hook learns which hosts are drained, and a machine that it makes there all the same is removed', async () => {
  const agent = await startAgent();
  const asked: { event: string; drainedHosts?: string[] }[] = [];
  let host = 'node-1';
  const hook = createServer(async (request, response) => {
    asked.push(JSON.parse(await text(request)));
    response.end(JSON.stringify({ address: '127.0.0.1', port: agent.port, host }));
  }).listen(0, '127.0.0.1');
  await once(hook, 'listening');
  onTestFinished(async () => {
    await agent[Symbol.asyncDispose]();
    hook.closeAllConnections();
    hook.close();
  });
  const url = `http://127.0.0.1:${(hook.address() as AddressInfo).port}/`;
  await using gateway = await startGateway({ args: [`--create-hook=${url}`, `--kill-hook=${url}`] });
  await gateway.call('PATCH /hosts/node-1', { drain: true });
  const refused = await gateway.call('POST /v2/sandboxes', { templateID: 'base' });
  expect([refused.status, refused.headers.get('retry-after')]).toEqual([503, '1']);
  expect(refused.body.message).toBe("host 'node-1' is being drained: try again later");
  await until('the machine is removed', () => asked.some(({ event }) => event === 'kill'));
  expect(asked[0]?.drainedHosts).toEqual(['node-1']);
  host = 'node-2';
  expect((await gateway.call('POST /v2/sandboxes', { templateID: 'base' })).status).toBe(201);
});

const secondsOf = async (gateway: TestGateway, owner: string, template: string): Promise<number> => {
  const { text: page } = await gateway.call('GET /gateway/metrics');
  const line = `envd_gateway_sandbox_seconds_total{owner="${owner}",template="${template}"} `;
  const found = page.split('\n').find((each) => each.startsWith(line));
  return Number(found?.slice(line.length) ?? 0);
};

test.each(['embedded', 'redis'])(
  'usage counts while a sandbox runs, also over a restart (%s)',
  async (kind) => {
    const redis = kind === 'redis' ? await startRedis() : null;
    onTestFinished(() => redis?.[Symbol.asyncDispose]());
    await using guests = await startGuests(1);
    const args = ['--hook=true', ...(redis ? [`--redis=${redis.url}`] : [])];
    const options = { args, directory: scratch() };
    const first = await startGateway(options);
    await first.register('one', guests.ports[0] ?? 0, { timeout: 600, owner: 'ada', templateID: 'base' });
    const grows = (gateway: TestGateway, from: number) =>
      until(
        'the seconds grow',
        () => secondsOf(gateway, 'ada', 'base'),
        (value) => value > from,
      );
    const before = await grows(first, 0.3);
    await first.kill('SIGKILL');
    await using gateway = await startGateway(options);
    const after = await grows(gateway, before);
    await gateway.call('POST /sandboxes/one/pause');
    const paused = await secondsOf(gateway, 'ada', 'base');
    expect(paused).toBeGreaterThan(after);
    expect(await secondsOf(gateway, 'ada', 'base')).toBe(paused);
    await gateway.call('DELETE /sandboxes/one');
    expect(await secondsOf(gateway, 'ada', 'base')).toBe(paused);
  },
);
