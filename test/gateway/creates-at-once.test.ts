import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { Sandbox } from 'e2b';
import { expect, onTestFinished, test } from 'vitest';
import { needs } from '../support/machine/needs.ts';
import { scratch } from '../support/machine/scratch.ts';
import { type Agent, startAgent } from '../support/programs/agent.ts';
import { API_KEY, startGateway, type TestGateway } from '../support/programs/gateway.ts';
import { until } from '../support/until.ts';

interface Scene {
  readonly gateway: TestGateway;
  /** The owners of the creations that the hook has begun, in order. */
  readonly begun: string[];
  /** Lets the hook answer. */
  readonly go: () => void;
}

/** A gateway whose create hook answers after `ms`, or only after `go()`. */
async function scene(args: readonly string[], ms: number | null = null): Promise<Scene> {
  const agent: Agent = await startAgent();
  const begun: string[] = [];
  const { promise: gone, resolve: go } = Promise.withResolvers<void>();
  const hook = createServer(async (request, response) => {
    const { event, owner } = JSON.parse(await text(request)) as { event: string; owner: string | null };
    if (event === 'create') begun.push(String(owner));
    if (event === 'create') await (ms === null ? gone : delay(ms));
    response.end(JSON.stringify({ address: '127.0.0.1', port: agent.port }));
  }).listen(0, '127.0.0.1');
  await once(hook, 'listening');
  const url = `http://127.0.0.1:${(hook.address() as AddressInfo).port}/`;
  const keys = join(scratch(), 'keys');
  const clients = ['ada', 'eve', 'bob'].map((name) => `client ${name} key-of-${name}\n`);
  writeFileSync(keys, `platform ${API_KEY}-2\n${clients.join('')}`);
  const gateway = await startGateway({
    args: [
      `--create-hook=${url}`,
      `--kill-hook=${url}`,
      `--key-file=${keys}`,
      '--header-prefix=E2b',
      ...args,
    ],
  });
  onTestFinished(async () => {
    go();
    for (const each of [gateway, agent]) await each[Symbol.asyncDispose]();
    hook.closeAllConnections();
    hook.close();
  });
  return { gateway, begun, go };
}

const create = (gateway: TestGateway, who: string) =>
  gateway.call('POST /v2/sandboxes', { templateID: 'base' }, { 'x-api-key': `key-of-${who}` });

test('the published JavaScript client creates two hundred sandboxes at once', async () => {
  const { gateway } = await scene([], 50);
  const options = {
    apiKey: 'key-of-ada',
    apiUrl: gateway.url,
    sandboxUrl: gateway.url,
    validateApiKey: false,
  };
  const made = await Promise.all(Array.from({ length: 200 }, () => Sandbox.create(options)));
  expect(new Set(made.map(({ sandboxId }) => sandboxId)).size).toBe(200);
});

const PYTHON = `
import asyncio
from e2b import AsyncSandbox
async def main():
    made = await asyncio.gather(*[AsyncSandbox.create("base", validate_api_key=False) for _ in range(200)])
    print(len({sandbox.sandbox_id for sandbox in made}))
asyncio.run(main())
`;

test('the published Python client creates two hundred sandboxes at once', async () => {
  needs('the published Python client');
  const { gateway } = await scene([], 50);
  const env = { E2B_API_KEY: 'key-of-ada', E2B_API_URL: gateway.url, E2B_SANDBOX_URL: gateway.url };
  const { stdout } = await promisify(execFile)('python3', ['-c', PYTHON], {
    env: { ...process.env, ...env },
  });
  expect(stdout).toBe('200\n');
});

test('creations beyond the limit wait in fair turns by owner', async () => {
  const { gateway, begun, go } = await scene(['--max-creates=4']);
  const all = Array.from({ length: 6 }, () => create(gateway, 'ada'));
  await until('the share of one owner is used', () => begun.length === 2);
  all.push(create(gateway, 'eve'));
  await until('another owner has a place', () => begun.length === 3);
  all.push(create(gateway, 'bob'));
  await until('so has a third', () => begun.length === 4);
  all.push(create(gateway, 'eve'));
  go();
  for (const { status } of await Promise.all(all)) expect(status).toBe(201);
  expect(begun.slice(0, 4)).toEqual(['ada', 'ada', 'eve', 'bob']);
  expect(begun.toSorted()).toEqual([...Array(6).fill('ada'), 'bob', 'eve', 'eve']);
});

test('one beyond those that may wait is refused, with the time after which clients try again', async () => {
  const { gateway, begun, go } = await scene(['--max-creates=2', '--max-waiting=2']);
  const first = create(gateway, 'ada');
  await until('the hook runs', () => begun.length === 1);
  // Of two that come while one may wait, one is refused.
  const others = [create(gateway, 'ada'), create(gateway, 'ada')];
  const refused = await Promise.race(others);
  expect([refused.status, refused.headers.get('retry-after')]).toEqual([429, '1']);
  expect(refused.body.message).toContain('--max-waiting');
  go();
  expect((await first).status).toBe(201);
  expect((await Promise.all(others)).map(({ status }) => status).toSorted()).toEqual([201, 429]);
});

test('a client that leaves before its turn creates nothing', async () => {
  const { gateway, begun, go } = await scene(['--max-creates=2']);
  const first = create(gateway, 'ada');
  await until('the hook runs', () => begun.length === 1);
  const left = new AbortController();
  const second = fetch(`${gateway.url}/v2/sandboxes`, {
    method: 'POST',
    headers: { 'x-api-key': 'key-of-ada' },
    body: JSON.stringify({ templateID: 'base' }),
    signal: left.signal,
  }).catch(() => 'left');
  const third = create(gateway, 'eve');
  await until('the other owner has a place', () => begun.length === 2);
  left.abort();
  expect(await second).toBe('left');
  go();
  for (const { status } of await Promise.all([first, third])) expect(status).toBe(201);
  expect((await create(gateway, 'ada')).status).toBe(201);
  expect(begun).toEqual(['ada', 'eve', 'ada']);
});
