import { once } from 'node:events';
import { mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { scratch } from '../support/machine/scratch.ts';
import { type Agent, startAgent } from '../support/programs/agent.ts';
import { startGateway, type TestGateway, toSandbox } from '../support/programs/gateway.ts';
import { hookCalls, phase, record } from '../support/servers/hook.ts';
import { until } from '../support/until.ts';

interface Scene {
  readonly gateway: TestGateway;
  readonly agent: Agent;
  /** A file in this directory is a machine. */
  readonly machines: string;
  readonly calls: string;
}

/** A gateway that compares each second. */
async function scene(...args: readonly string[]): Promise<Scene> {
  const directory = scratch();
  const [machines, calls] = [join(directory, 'machines'), join(directory, 'calls')];
  mkdirSync(machines);
  const agent = await startAgent();
  const kill = `${record(calls)}; rm -f ${machines}/"$SANDBOX_ID"`;
  const create = `touch ${machines}/"$SANDBOX_ID"; sleep 3; echo '{"address":"127.0.0.1","port":${agent.port}}'`;
  const gateway = await startGateway({
    args: [
      ...[`--list-hook=ls ${machines}`, `--kill-hook=${kill}`, `--create-hook=${create}`],
      ...['--list-interval=1', '--reconcile-grace=1', ...args],
    ],
  });
  onTestFinished(async () => {
    for (const each of [gateway, agent]) await each[Symbol.asyncDispose]();
  });
  return { gateway, agent, machines, calls };
}

const toldIn = ({ log }: TestGateway) =>
  log
    .filter(({ msg }) => msg === 'the machines and the registry differ')
    .map(({ sandboxID, difference }) => `${sandboxID} ${difference}`);

async function metric(gateway: TestGateway, name: string): Promise<number> {
  const { text } = await gateway.call('GET /gateway/metrics');
  return Number(
    text
      .split('\n')
      .find((line) => line.startsWith(`${name} `))
      ?.slice(name.length),
  );
}

test('differences are told once, listed and counted, and nothing is removed', async () => {
  const { gateway, agent, machines, calls } = await scene();
  // Two comparisons in between would tell of this one, too.
  writeFileSync(join(machines, 'here'), '');
  for (const id of ['here', 'lost']) await gateway.register(id, agent.port, { timeout: 600 });
  writeFileSync(join(machines, 'orphan'), '');
  await until('both are told', () => toldIn(gateway).length === 2);
  expect(toldIn(gateway).toSorted()).toEqual(['lost missing', 'orphan unknown']);
  const compared = await metric(gateway, 'envd_gateway_comparisons_total{result="compared"}');
  await until(
    'they are compared twice more',
    async () => (await metric(gateway, 'envd_gateway_comparisons_total{result="compared"}')) >= compared + 2,
  );
  expect(toldIn(gateway)).toHaveLength(2);
  expect(await metric(gateway, 'envd_gateway_differences{difference="missing"}')).toBe(1);
  expect((await gateway.call('GET /gateway/differences')).body).toMatchObject({
    comparedAt: expect.any(String),
    differences: expect.arrayContaining([
      expect.objectContaining({ sandboxID: 'lost', difference: 'missing' }),
      expect.objectContaining({ sandboxID: 'orphan', difference: 'unknown' }),
    ]),
  });
  expect(hookCalls(calls)).toEqual([]);
  expect(readdirSync(machines)).toContain('orphan');
  rmSync(join(machines, 'orphan'));
  writeFileSync(join(machines, 'lost'), '');
  await until(
    'nothing differs',
    async () => (await gateway.call('GET /gateway/differences')).body.differences.length === 0,
  );
});

test('a machine that nobody knows is removed after the grace, and none that is being created', async () => {
  const { gateway, machines, calls } = await scene('--reconcile=remove');
  writeFileSync(join(machines, 'orphan'), '');
  const created = await gateway.call('POST /v2/sandboxes', { templateID: 'base', timeout: 600 });
  expect(created.status).toBe(201);
  await until('the orphan is removed', () => !readdirSync(machines).includes('orphan'));
  await phase(gateway, 'orphan', 'gone');
  expect(hookCalls(calls)).toMatchObject([{ sandboxID: 'orphan', event: 'kill', outcome: 'remove' }]);
  expect(readdirSync(machines)).toEqual([created.body.sandboxID]);
  expect(await metric(gateway, 'envd_gateway_orphans_removed_total')).toBe(1);
});

test.each([
  ['fails', (machines: string) => `ls ${machines}; false`],
  ['has a line that is no id', (machines: string) => `ls ${machines}; echo 'no such file'`],
  ['is too late', (machines: string) => `ls ${machines}; sleep 1000`],
])('a list that %s changes nothing', async (_, hook) => {
  const machines = scratch();
  writeFileSync(join(machines, 'orphan'), '');
  const args = ['--reconcile=remove', '--kill-hook=true', '--list-interval=1', '--reconcile-grace=1'];
  await using gateway = await startGateway({
    args: [`--list-hook=${hook(machines)}`, '--hook-timeout=1', ...args],
  });
  await until(
    'it has failed twice',
    async () => (await metric(gateway, 'envd_gateway_comparisons_total{result="failed"}')) >= 2,
  );
  expect((await gateway.call('GET /gateway/differences')).body).toEqual({
    comparedAt: null,
    differences: [],
  });
});

test('a list hook can be a URL', async () => {
  const asked: string[] = [];
  const server = createServer((request, response) => {
    asked.push(`${request.method} ${request.headers['webhook-signature'] !== undefined}`);
    response.end('orphan\n\n');
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/machines`;
  const secret = `whsec_${Buffer.alloc(32).toString('base64')}`;
  await using gateway = await startGateway({
    args: [`--list-hook=${url}`, '--list-interval=1', `--hook-secret=${secret}`],
  });
  await until('it is told', () => toldIn(gateway).length === 1);
  expect(asked[0]).toBe('POST true');
});

test('what is forgotten, and what expires without a hook that removes it, is removed by the kill hook', async () => {
  const { gateway, agent, calls } = await scene('--keep-paused=1');
  await gateway.register('kept', agent.port, { timeout: 0, onExpiry: 'pause' });
  await gateway.register('brief', agent.port, { timeout: 0, onExpiry: 'remove' });
  for (const id of ['kept', 'brief']) await phase(gateway, id, 'gone');
  const killed = hookCalls(calls).map(({ sandboxID, event }) => `${sandboxID} ${event}`);
  expect(killed.toSorted()).toEqual(['brief kill', 'kept kill']);
});

/** A gateway whose list hook prints the lines that this returns the file of. */
async function listing(...args: readonly string[]): Promise<Scene & { readonly list: string }> {
  const list = join(scratch(), 'list');
  writeFileSync(list, '');
  return { ...(await scene(`--list-hook=cat ${list}`, ...args)), list };
}

test('the record of a machine that has ended goes, and its clients and readers of events are told why', async () => {
  const { gateway, agent, calls, list } = await listing('--reconcile=remove');
  for (const id of ['here', 'ended', 'both']) await gateway.register(id, agent.port, { timeout: 600 });
  const reason = `container 'sandbox': OOMKilled \u001b[31m\u202e ${'x'.repeat(300)}`;
  const known = `container 'sandbox': OOMKilled ?[31m? ${'x'.repeat(300)}`.slice(0, 200);
  writeFileSync(list, `here\nended ended: ${reason}\nboth\nboth ended: an earlier one\nstranger ended: x\n`);
  await phase(gateway, 'ended', 'removing');
  const answer = await gateway.call('GET /health', undefined, toSandbox('ended'));
  expect(answer).toMatchObject({
    status: 502,
    body: { message: `sandbox 'ended' was not found: it has ended: ${known}` },
  });
  const extended = await gateway.call('POST /sandboxes/ended/timeout', { timeout: 60 });
  expect(extended).toMatchObject({ status: 404, body: { message: `sandbox 'ended' has ended: ${known}` } });
  const events = async () =>
    (await gateway.call('GET /events?follow=false')).text
      .split('\n')
      .filter((line) => line.includes('"reason":"ended"'))
      .map((line) => JSON.parse(line) as object);
  const told = { reason: 'ended', detail: known, sandboxID: 'ended' };
  expect(await events()).toMatchObject([{ event: 'failed', ...told }]);
  expect(hookCalls(calls)).toEqual([]);
  // Who removes it does not wait until all clients were told.
  expect((await gateway.call('DELETE /sandboxes/ended')).status).toBe(204);
  expect(hookCalls(calls)).toMatchObject([{ sandboxID: 'ended', event: 'kill', outcome: 'remove' }]);
  expect(await events()).toMatchObject([
    { event: 'failed', ...told },
    { event: 'removed', ...told },
  ]);
  for (const id of ['here', 'both']) await phase(gateway, id, 'running');
  await until(
    'nothing differs',
    async () => (await gateway.call('GET /gateway/differences')).body.differences.length === 0,
  );
});

test('without --reconcile=remove, a machine that has ended is only told, with its reason', async () => {
  const { gateway, agent, list } = await listing();
  await gateway.register('box', agent.port, { timeout: 600 });
  writeFileSync(list, 'box ended: Evicted: a drain\n');
  await until('it is told', () => toldIn(gateway).length === 1);
  expect(gateway.log.find(({ msg }) => msg === 'the machines and the registry differ')).toMatchObject({
    sandboxID: 'box',
    reason: 'Evicted: a drain',
  });
  expect((await gateway.call('GET /gateway/differences')).body.differences).toMatchObject([
    { sandboxID: 'box', difference: 'missing', reason: 'Evicted: a drain' },
  ]);
  await phase(gateway, 'box', 'running');
});

test('a removal needs the hooks for it', async () => {
  const { gateway } = await scene();
  expect((await gateway.call('GET /gateway/differences', undefined, { 'x-api-key': 'wrong' })).status).toBe(
    401,
  );
  await expect(startGateway({ args: ['--reconcile=remove'] })).rejects.toThrow();
});
