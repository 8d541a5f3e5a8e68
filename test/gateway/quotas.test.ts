import { once } from 'node:events';
import { renameSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { RateLimitError, Sandbox } from 'e2b';
import { expect, onTestFinished, test } from 'vitest';
import { scratch } from '../support/machine/scratch.ts';
import { type Agent, startAgent } from '../support/programs/agent.ts';
import { API_KEY, startGateway, type TestGateway } from '../support/programs/gateway.ts';
import { until } from '../support/until.ts';

interface Scene {
  readonly gateway: TestGateway;
  /** What the hooks were asked. */
  readonly asked: Record<string, unknown>[];
  /** Replaces the quotas of the key file. */
  readonly setQuotas: (...lines: readonly string[]) => void;
  readonly ada: (operation: string, body?: unknown) => ReturnType<TestGateway['call']>;
}

/** @param permit the answer of the hook for extensions, or null without that hook */
async function scene(quotas: readonly string[], permit: string | null = null): Promise<Scene> {
  const agent: Agent = await startAgent();
  const asked: Record<string, unknown>[] = [];
  const hook = createServer(async (request, response) => {
    const question = JSON.parse(await text(request)) as Record<string, unknown>;
    asked.push(question);
    if (permit === 'fails' && question.event === 'extend') response.writeHead(500);
    const isExtension = question.event === 'extend';
    response.end(isExtension ? permit : JSON.stringify({ address: '127.0.0.1', port: agent.port }));
  }).listen(0, '127.0.0.1');
  await once(hook, 'listening');
  const url = `http://127.0.0.1:${(hook.address() as AddressInfo).port}/`;
  const keys = join(scratch(), 'keys');
  const setQuotas = (...lines: readonly string[]) => {
    const clients = ['ada', 'eve'].map((name) => `client ${name} key-of-${name}`);
    writeFileSync(`${keys}.new`, `${[`platform ${API_KEY}-2`, ...clients, ...lines].join('\n')}\n`);
    renameSync(`${keys}.new`, keys);
  };
  setQuotas(...quotas);
  const hooks = ['create', 'kill', ...(permit === null ? [] : ['extend'])].map(
    (name) => `--${name}-hook=${url}`,
  );
  const options = ['--create-options=cpuCount,memoryMB', '--header-prefix=E2b', `--key-file=${keys}`];
  const gateway = await startGateway({ args: [...hooks, ...options] });
  onTestFinished(async () => {
    for (const each of [gateway, agent]) await each[Symbol.asyncDispose]();
    hook.closeAllConnections();
    hook.close();
  });
  const ada: Scene['ada'] = (operation, body) => gateway.call(operation, body, { 'x-api-key': 'key-of-ada' });
  return { gateway, asked, setQuotas, ada };
}

const create = ({ ada }: Scene, more: object = {}) =>
  ada('POST /v2/sandboxes', { templateID: 'base', ...more });

test('an owner has at most the sandboxes of its quota, and may try again when one is gone', async () => {
  const it = await scene(['quota ada sandboxes=2']);
  const first = await create(it);
  expect([first.status, (await create(it)).status]).toEqual([201, 201]);
  const refused = await create(it);
  expect([refused.status, refused.headers.get('retry-after')]).toEqual([429, '5']);
  expect(refused.body.message).toContain(
    "client 'ada' has 2 sandboxes, the most that it may have (quota sandboxes)",
  );
  const other = await it.gateway.call(
    'POST /v2/sandboxes',
    { templateID: 'base' },
    { 'x-api-key': 'key-of-eve' },
  );
  expect(other.status).toBe(201);
  expect((await it.ada(`DELETE /sandboxes/${first.body.sandboxID}`)).status).toBe(204);
  expect((await create(it)).status).toBe(201);
});

test('an owner creates at most as many a minute as its quota has, and what was refused does not count', async () => {
  const it = await scene(['quota * creates=2']);
  expect([(await create(it)).status, (await create(it)).status]).toEqual([201, 201]);
  const refused = await create(it);
  const seconds = Number(refused.headers.get('retry-after'));
  expect([refused.status, seconds > 1 && seconds <= 30]).toEqual([429, true]);
  expect(refused.body.message).toContain(`(quota creates): try again in ${seconds} s`);
  const again = Number((await create(it)).headers.get('retry-after'));
  expect(again).toBeLessThanOrEqual(seconds);
});

test('a time to live beyond the quota is refused, and the one that is not named is cut', async () => {
  const it = await scene(['quota ada timeout=60']);
  const refused = await create(it, { timeout: 61 });
  expect([refused.status, refused.headers.get('retry-after')]).toEqual([400, null]);
  expect(refused.body.message).toBe(
    "the time to live must be at most 60 s for client 'ada' (quota timeout), not 61",
  );
  const { body } = await create(it);
  const { sandboxID: id } = body;
  expect(Date.parse(body.endAt) - Date.parse(body.startedAt)).toBe(60_000);
  expect((await it.ada(`POST /sandboxes/${id}/timeout`, { timeout: 3600 })).status).toBe(400);
  expect((await it.ada(`POST /sandboxes/${id}/refreshes`, { duration: 3600 })).status).toBe(400);
  expect((await it.ada(`POST /sandboxes/${id}/connect`, { timeout: 3600 })).status).toBe(400);
  expect((await it.ada(`POST /sandboxes/${id}/timeout`, { timeout: 60 })).status).toBe(204);
  expect((await it.ada(`POST /sandboxes/${id}/refreshes`)).status).toBe(204);
  // The platform may do anything.
  expect((await it.gateway.call(`POST /sandboxes/${id}/timeout`, { timeout: 3600 })).status).toBe(204);
});

test('the create hook gets the owner and its sizes, and what is larger is refused', async () => {
  const it = await scene(['quota ada cpu=2 memory=1024']);
  const refused = await create(it, { cpuCount: 4 });
  expect([refused.status, refused.body.message]).toEqual([
    400,
    "cpuCount must be a number up to 2 (quota cpu), not '4'",
  ]);
  expect((await create(it, { memoryMB: '9' })).status).toBe(400);
  expect((await create(it, { cpuCount: 2, memoryMB: 512 })).status).toBe(201);
  expect(it.asked).toMatchObject([
    { event: 'create', owner: 'ada', quota: { cpu: 2, memory: 1024 }, drainedHosts: [] },
  ]);
});

test('a changed key file changes quotas, and a wrong line changes nothing', async () => {
  const it = await scene(['quota ada sandboxes=1']);
  const read = (message: string) =>
    until(message, () => it.gateway.log.some(({ msg }) => String(msg).includes(message)));
  expect((await create(it)).status).toBe(201);
  expect((await create(it)).status).toBe(429);
  it.setQuotas('quota ada sandboxes=2 sandboxes=3');
  await read('the changed key file cannot be used');
  expect((await create(it)).status).toBe(429);
  it.setQuotas('quota ada sandboxes=2');
  await read('was read again');
  expect((await create(it)).status).toBe(201);
});

test('a hook decides whether a client may extend, and is not asked about the platform', async () => {
  const it = await scene([], JSON.stringify({ error: 'your plan ends here', code: 403 }));
  const { sandboxID: id } = (await create(it, { timeout: 300 })).body;
  const refused = await it.ada(`POST /sandboxes/${id}/timeout`, { timeout: 600 });
  expect([refused.status, refused.body.message]).toEqual([403, 'your plan ends here']);
  expect((await it.ada(`POST /sandboxes/${id}/connect`, { timeout: 600 })).status).toBe(403);
  // One that ends earlier is no extension.
  expect((await it.ada(`POST /sandboxes/${id}/timeout`, { timeout: 100 })).status).toBe(204);
  expect((await it.gateway.call(`POST /sandboxes/${id}/timeout`, { timeout: 900 })).status).toBe(204);
  const asked = it.asked.filter(({ event }) => event === 'extend');
  expect(asked).toHaveLength(2);
  expect(asked[0]).toMatchObject({ sandboxID: id, owner: 'ada', templateID: 'base', timeout: 600 });
});

test('a hook for extensions that permits, and one that fails', async () => {
  const permits = await scene([], '');
  const { sandboxID: id } = (await create(permits)).body;
  expect((await permits.ada(`POST /sandboxes/${id}/timeout`, { timeout: 600 })).status).toBe(204);
  const fails = await scene([], 'fails');
  const { sandboxID: other } = (await create(fails)).body;
  expect((await fails.ada(`POST /sandboxes/${other}/timeout`, { timeout: 600 })).status).toBe(502);
});

test('the published client waits for a place, and says in the end that there is none', async () => {
  const it = await scene(['quota ada sandboxes=1', 'quota eve sandboxes=0']);
  const options = (owner: string) => ({
    ...{ apiKey: `key-of-${owner}`, apiUrl: it.gateway.url, sandboxUrl: it.gateway.url },
    ...{ validateApiKey: false, retries: 3 },
  });
  const first = await Sandbox.create(options('ada'));
  const second = Sandbox.create(options('ada'));
  await first.kill();
  expect((await second).sandboxId).not.toBe(first.sandboxId);
  await expect(Sandbox.create({ ...options('eve'), retries: 0 })).rejects.toThrow(RateLimitError);
});
