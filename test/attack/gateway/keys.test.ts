import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import { scratch } from '../../support/machine/scratch.ts';
import { API_KEY, startGateway, type TestGateway, toSandbox } from '../../support/programs/gateway.ts';

let gateway: TestGateway;
let file: string;
let port: number;
let shown: (string | undefined)[];

const LINES = [
  '# keys',
  'platform second-platform-key',
  'client ada key-of-ada',
  '',
  'client bob key-of-bob',
];

beforeEach(async () => {
  shown = [];
  const server = createServer((request, response) => {
    shown.push(request.headers['x-api-key']?.toString());
    response.end();
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  port = (server.address() as AddressInfo).port;
  file = join(scratch(), 'keys');
  writeFileSync(file, LINES.join('\n'));
  await start();
});

async function start(...args: readonly string[]): Promise<void> {
  const started = await startGateway({ args: [`--key-file=${file}`, ...args] });
  onTestFinished(() => started[Symbol.asyncDispose]());
  gateway = started;
  await gateway.register('of-ada', port, { owner: 'ada', envdAccessToken: 'token-of-ada', timeout: 60 });
  await gateway.register('of-nobody', port, { envdAccessToken: 'token-of-nobody', timeout: 60 });
}

const as = (key: string, operation: string, body?: unknown) =>
  gateway.call(operation, body, { 'x-api-key': key });

const NAMING = [
  ...(['GET /sandboxes/ID', 'POST /sandboxes/ID/timeout', 'POST /sandboxes/ID/refreshes'] as const),
  ...(['POST /sandboxes/ID/connect', 'POST /v2/sandboxes/ID/connect'] as const),
];

test('a client gets the tokens of its own sandboxes and changes those only', async () => {
  for (const each of NAMING) {
    const body = each.startsWith('GET')
      ? undefined
      : { [each.endsWith('refreshes') ? 'duration' : 'timeout']: 90 };
    const own = await as('key-of-ada', each.replace('ID', 'of-ada'), body);
    expect(own.status).toBeLessThan(300);
    if (own.status === 200) expect(own.body.envdAccessToken).toBe('token-of-ada');
    for (const [key, id] of [
      ['key-of-bob', 'of-ada'],
      ['key-of-ada', 'of-nobody'],
      ['key-of-ada', 'unknown'],
    ] as const) {
      const other = await as(key, each.replace('ID', id), body);
      // The same as for an id that nobody has.
      expect(other.body).toEqual({ code: 404, message: `sandbox '${id}' is not known` });
    }
  }
  const listed = async (key: string) =>
    (await as(key, 'GET /v2/sandboxes')).body.map(({ sandboxID }: { sandboxID: string }) => sandboxID);
  expect(await listed('key-of-ada')).toEqual(['of-ada']);
  expect(await listed('key-of-bob')).toEqual([]);
  expect(await listed('second-platform-key')).toEqual(['of-nobody', 'of-ada']);
  expect((await as('key-of-ada', 'GET /sandboxes')).text).not.toContain('token-of');
});

test('a client neither registers nor removes, reads no metrics, and reaches no closed operation', async () => {
  const attempts = [
    as('key-of-ada', 'POST /sandboxes', { sandboxID: 'of-ada', address: '127.0.0.1', port: 1 }),
    as('key-of-ada', 'DELETE /sandboxes/of-ada'),
    as('key-of-ada', 'GET /gateway/metrics'),
  ];
  for (const { status, body } of await Promise.all(attempts)) {
    expect(status).toBe(403);
    expect(body.message).toMatch(/needs a platform key|only a platform key may/);
  }
  const init = { method: 'POST', headers: { ...toSandbox('of-ada'), 'x-api-key': 'key-of-ada' } };
  expect((await fetch(`${gateway.url}/init`, init)).status).toBe(403);
  expect(shown).toEqual([]);
});

test('no key of anybody is passed on to a sandbox; other values are', async () => {
  for (const key of [API_KEY, 'second-platform-key', 'key-of-ada', 'key-of-bob', 'of the sandbox'])
    await fetch(gateway.url, { headers: { ...toSandbox('of-ada'), 'x-api-key': key } });
  expect(shown).toEqual([undefined, undefined, undefined, undefined, 'of the sandbox']);
});

test('keys are rotated while the gateway runs; a file that cannot be used changes nothing', async () => {
  const status = async (key: string) => (await as(key, 'GET /sandboxes')).status;
  writeFileSync(file, 'platform third-key\nclient ada new-key-of-ada\n');
  await expect.poll(() => status('third-key')).toBe(200);
  for (const old of ['second-platform-key', 'key-of-ada', 'key-of-bob']) expect(await status(old)).toBe(401);
  for (const key of [API_KEY, 'new-key-of-ada']) expect(await status(key)).toBe(200);
  for (const text of ['', 'client ada key', 'platform fourth-key\nnonsense secret-word']) {
    const before = gateway.log.length;
    writeFileSync(file, text);
    await expect.poll(() => gateway.log.length).toBeGreaterThan(before);
    expect(await status('third-key')).toBe(200);
    expect(await status('fourth-key')).toBe(401);
  }
  expect(JSON.stringify(gateway.log)).not.toMatch(/third-key|fourth-key|secret-word|of-the-platform/);
});

test('with --require-key a sandbox is reached with a key only, by its owner and the platform', async () => {
  await start('--require-key');
  const reach = async (key: string | null, id = 'of-ada') => {
    const headers = { ...toSandbox(id), ...(key !== null && { 'x-api-key': key }) };
    return (await fetch(gateway.url, { headers })).status;
  };
  expect(await reach(null)).toBe(401);
  expect(await reach('wrong')).toBe(401);
  expect(await reach('key-of-ada')).toBe(200);
  expect(await reach(API_KEY)).toBe(200);
  expect([await reach('key-of-bob'), await reach('key-of-bob', 'unknown')]).toEqual([502, 502]);
  expect(await reach('key-of-ada', 'of-nobody')).toBe(502);
});

test('with --require-key, private sandboxes of others are answered as those that do not exist', async () => {
  await start('--require-key');
  await gateway.register('secret', 1, { timeout: 600, owner: 'ada', allowPublicTraffic: false });
  const reach = async (key: string, id: string) => {
    const answer = await fetch(gateway.url, { headers: { ...toSandbox(id, 3000), 'x-api-key': key } });
    return { status: answer.status, text: (await answer.text()).replaceAll(id, 'ID') };
  };
  expect(await reach('key-of-bob', 'secret')).toEqual(await reach('key-of-bob', 'none'));
  expect((await reach('key-of-ada', 'secret')).status).toBe(403);
});

test('a gateway does not start with a file of keys that cannot be used', async () => {
  for (const text of ['', 'nonsense', 'client a b', 'platform a b']) {
    writeFileSync(file, text);
    const started = startGateway({ args: [`--key-file=${file}`] });
    await expect(started).rejects.toThrow('gateway exited with 2');
  }
});
