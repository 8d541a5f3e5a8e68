import { writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { callTool } from '../support/clients/mcp-client.ts';
import { scratch } from '../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../support/programs/daemon.ts';
import { envctl, envctlUntil } from '../support/programs/envctl.ts';
import { until } from '../support/until.ts';

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(() => daemon?.[Symbol.asyncDispose]());

const TOKEN = 'a-token-of-the-tests';

async function serve(...args: string[]) {
  const file = join(scratch(), 'token');
  writeFileSync(file, `${TOKEN}\n`);
  const all = ['mcp', '--http', '--http-token-file', file, '--json', ...args];
  const running = await envctlUntil(daemon.url, all, /\n/);
  return { running, ...(JSON.parse(running.stdout()) as { url: string; token: string }) };
}

async function connect(url: string, token: string, mode: 'auto' | 'legacy' = 'legacy'): Promise<Client> {
  const client = new Client({ name: 'test', version: '1' }, { versionNegotiation: { mode } });
  const headers = { authorization: `Bearer ${token}` };
  const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } });
  await client.connect(transport);
  onTestFinished(() => client.close());
  return client;
}

/** Sends a request with any headers, which fetch() does not allow. */
async function send(url: string, headers: Record<string, string>, body = LIST, method = 'POST') {
  const sent = request(url, { method, headers: { ...GOOD, ...headers } });
  sent.end(method === 'POST' ? body : undefined);
  const response = await new Promise<import('node:http').IncomingMessage>((resolve, reject) =>
    sent.once('response', resolve).once('error', reject),
  );
  return { status: response.statusCode, body: await text(response), headers: response.headers };
}

const LIST = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/list', params: {} });
const GOOD = {
  authorization: `Bearer ${TOKEN}`,
  'content-type': 'application/json',
  accept: 'application/json, text/event-stream',
};

test('the published client calls tools, and each client sees what was started', async () => {
  const { url, token } = await serve();
  expect(token).toBe(TOKEN);
  const [one, other] = [await connect(url, token), await connect(url, token)];
  expect((await one.listTools()).tools.length).toBeGreaterThan(5);
  expect((await callTool(one, 'run_command', { command: 'echo roses' })).quoted).toEqual(['roses\n']);
  const started = await callTool(one, 'start_command', { command: 'echo begun; sleep 98128' });
  const process = Number(/Process (\d+) runs/.exec(started.words)?.[1]);
  const read = await callTool(other, 'read_output', { process, offset: 0, wait_seconds: 30 });
  expect(read.quoted).toEqual(['begun\n']);
});

test.each([
  [
    'a client of the newest revision cancels',
    'auto',
    (client: Client, cancel: AbortController) => cancel.abort(client),
  ],
  ['a client of an older revision leaves', 'legacy', (client: Client) => client.close()],
] as const)('what runs is killed when %s', async (_, mode, leave) => {
  const { url, token } = await serve();
  const client = await connect(url, token, mode);
  const runs = async () => (await envctl(daemon.url, ['ps', '--json'])).stdout.includes('98131');
  const cancel = new AbortController();
  const call = callTool(client, 'run_command', { command: 'sleep 98131' }, cancel.signal);
  call.catch(() => {});
  await until('it runs', runs);
  await leave(client, cancel);
  await expect(call).rejects.toThrow();
  await until('it has been killed', async () => !(await runs()));
});

test('a token is made if none is given', async () => {
  const running = await envctlUntil(daemon.url, ['mcp', '--http'], /Bearer/);
  const [, url = '', token = ''] =
    /^(http:.*)\nAuthorization: Bearer (\S{43})\n$/.exec(running.stdout()) ?? [];
  expect((await (await connect(url, token)).listTools()).tools.length).toBeGreaterThan(5);
  await expect(connect(url, `${token}x`)).rejects.toThrow();
});

test('nobody without the token is served, nor a page of a browser', async () => {
  const { url } = await serve();
  const { host, port } = new URL(url);
  expect((await send(url, {})).status).toBe(200);
  expect((await send(url, { host: `localhost:${port}` })).status).toBe(200);
  expect((await send(url, { origin: `http://${host}` })).status).toBe(200);
  for (const authorization of ['', 'Bearer', `Bearer ${TOKEN}x`, `Basic ${TOKEN}`, TOKEN])
    expect(await send(url, { authorization })).toMatchObject({
      ...{ status: 401, headers: { 'www-authenticate': 'Bearer' } },
    });
  for (const wrong of [
    'evil.example',
    `evil.example:${port}`,
    '127.0.0.1',
    `127.0.0.1:1`,
    `${host}.evil.example`,
  ])
    expect([wrong, (await send(url, { host: wrong })).status]).toEqual([wrong, 403]);
  for (const origin of ['http://evil.example', 'null', 'http://localhost:1', `https://${host}`, 'file://'])
    expect([origin, (await send(url, { origin })).status]).toEqual([origin, 403]);
  // A page is refused before its token is looked at.
  expect((await send(url, { origin: 'http://evil.example', authorization: '' })).status).toBe(403);
  expect((await send(url.replace('/mcp', '/other'), {})).status).toBe(404);
});

test('there are no sessions, and a body has a limit', async () => {
  const { url } = await serve();
  const initialize = {
    ...{ jsonrpc: '2.0', id: 1, method: 'initialize' },
    params: { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'old', version: '1' } },
  };
  const { status, headers, body } = await send(url, {}, JSON.stringify(initialize));
  expect([status, headers['mcp-session-id']]).toEqual([200, undefined]);
  expect(body).toContain('"protocolVersion":"2025-06-18"');
  expect((await send(url, {}, '', 'GET')).status).toBe(405);
  expect((await send(url, {}, '', 'DELETE')).status).toBe(405);
  expect((await send(url, {}, 'x'.repeat(5 * 1024 * 1024)).catch(() => ({ status: 413 }))).status).toBe(413);
  expect((await send(url, {})).status).toBe(200);
});

test.each(['SIGTERM', 'SIGINT'] as const)('%s ends it', async (signal) => {
  const { running, url } = await serve();
  const client = await connect(url, TOKEN);
  const call = callTool(client, 'run_command', { command: 'sleep 98129' }).catch(() => 'left');
  running.child.kill(signal);
  expect((await running.result).code).toBe(0);
  expect(await call).toBe('left');
});

test('options that do not fit are refused', async () => {
  const short = join(scratch(), 'token');
  writeFileSync(short, 'short');
  for (const args of [
    ['--listen-port', '1'],
    ['--http', '--http-token-file', short],
    ['--http', '--http-token-file', '/nonexistent/token'],
    ['--root', 'relative'],
    ['--timeout', '1h'],
  ])
    expect((await envctl(daemon.url, ['mcp', ...args])).code).toBe(120);
});
