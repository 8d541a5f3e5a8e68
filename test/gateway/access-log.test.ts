import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { startGateway, type TestGateway, toSandbox } from '../support/programs/gateway.ts';
import { until } from '../support/until.ts';

let gateway: TestGateway;
let server: Server;
let seen: IncomingHttpHeaders = {};

beforeAll(async () => {
  server = createServer(({ headers, url }, response) => {
    seen = headers;
    if (url === '/cut') response.write('a', () => response.destroy());
    else response.end('hello');
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  gateway = await startGateway();
  await gateway.register('one', (server.address() as AddressInfo).port, { timeout: 600 });
});

afterAll(async () => {
  await gateway[Symbol.asyncDispose]();
  server.closeAllConnections();
  server.close();
});

/** How many lines there were before the test. */
let earlier = 0;
beforeEach(() => {
  earlier = gateway.log.length;
});

const linesOf = (path: string) =>
  gateway.log.slice(earlier).filter((line) => line.msg === 'request' && line.path === path);
const lineOf = (path: string) => until(`${path} is logged`, () => linesOf(path)[0]);
const ask = (path: string, headers: Readonly<Record<string, string>> = {}) =>
  fetch(`${gateway.url}${path}`, { headers: { ...toSandbox('one'), ...headers } }).then((response) =>
    response.text().catch(() => 'aborted'),
  );

test('a request is one line, with its ids and without secrets', async () => {
  const trace = '0af7651916cd43dd8448eb211c80319c';
  const traceparent = `00-${trace}-b7ad6b7169203331-01`;
  await ask('/a/b?token=hidden', { 'x-request-id': 'mine-1', traceparent, 'x-api-key': 'hidden' });
  const line = await lineOf('/a/b');
  expect(line).toMatchObject({
    ...{ method: 'GET', sandboxID: 'one', port: 49983, status: 200, client: '127.0.0.1' },
    ...{ requestId: 'mine-1', traceId: trace, milliseconds: expect.any(Number), bytes: expect.any(Number) },
  });
  expect(line).not.toHaveProperty('aborted');
  expect(seen).toMatchObject({ 'x-request-id': 'mine-1', traceparent });
  expect(linesOf('/a/b')).toHaveLength(1);
  expect(JSON.stringify(gateway.log)).not.toContain('hidden');
});

test('a request without an id gets one, which the sandbox sees; one that cannot be an id is not logged', async () => {
  await ask('/none');
  const { requestId } = await lineOf('/none');
  expect(requestId).toMatch(/^[\da-f-]{36}$/);
  expect(seen['x-request-id']).toBe(requestId);
  await ask('/strange', { 'x-request-id': '{"a": "b"}' });
  expect(await lineOf('/strange')).not.toHaveProperty('requestId');
});

test('the answers of the gateway itself name the request as its line does', async () => {
  const answers = async (path: string, headers: Readonly<Record<string, string>>) => {
    const response = await fetch(`${gateway.url}${path}`, { headers });
    await response.text();
    return response.headers.get('x-request-id');
  };
  const refused = await answers('/refused', toSandbox('unknown'));
  expect(refused).toMatch(/^[\da-f-]{36}$/);
  expect((await lineOf('/refused')).requestId).toBe(refused);
  expect(await answers('/mine', { ...toSandbox('a b'), 'x-request-id': 'mine-2' })).toBe('mine-2');
  expect((await lineOf('/mine')).requestId).toBe('mine-2');
  for (const path of ['/gateway/health', '/sandboxes', '/neither'])
    expect(await answers(path, { 'x-request-id': 'mine-3' })).toBe('mine-3');
  expect(await answers('/sandboxes', { 'x-request-id': '{"a": "b"}' })).toBe(null);
});

test('the metrics tell how long requests took, by the phase of their sandbox', async () => {
  await ask('/timed');
  await ask('/timed', { 'svc-sandbox-id': 'unknown' });
  await until('both are logged', () => linesOf('/timed').length === 2);
  const { text } = await gateway.call('GET /gateway/metrics');
  for (const phase of ['running', 'unknown']) {
    expect(text).toMatch(new RegExp(`envd_gateway_route_seconds_count{phase="${phase}"} [1-9]`));
    expect(text).toMatch(
      new RegExp(`envd_gateway_exchange_seconds_bucket{le="3600",phase="${phase}"} [1-9]`),
    );
  }
  expect(text).not.toMatch(/"(one|unknown-id)"/);
});

test('refusals and broken responses are lines, too', async () => {
  await ask('/unknown', { 'svc-sandbox-id': 'unknown' });
  expect(await lineOf('/unknown')).toMatchObject({ sandboxID: 'unknown', status: 502 });
  await ask('/malformed', { 'svc-sandbox-id': 'a b' });
  expect(await lineOf('/malformed')).toMatchObject({ status: 400 });
  await ask('/cut');
  expect(await lineOf('/cut')).toMatchObject({ sandboxID: 'one', status: 200, aborted: true });
});
