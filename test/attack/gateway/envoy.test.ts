import { afterAll, beforeAll, expect, test } from 'vitest';
import { API_KEY, startGateway, type TestGateway } from '../../support/programs/gateway.ts';
import { carryAsEnvoy } from '../../support/servers/envoy.ts';

let gateway: TestGateway;

beforeAll(async () => {
  gateway = await startGateway();
  await gateway.register('one', 1234, { timeout: 3600 });
});

afterAll(() => gateway[Symbol.asyncDispose]());

const carry = (target: string, headers: Readonly<Record<string, string>> = { 'svc-sandbox-id': 'one' }) =>
  carryAsEnvoy(gateway.port, target, { host: 'a', ...headers });

test('a request goes to its sandbox, which is told of the gateway and not of its keys', async () => {
  const { cluster, headers } = await carry('/files?path=a&refusal=b', {
    ...{ 'svc-sandbox-id': 'one', 'x-api-key': API_KEY, 'x-metadata-a_b': '1' },
  });
  expect(cluster).toBe('sandboxes');
  expect(headers).toEqual({
    ...{ host: 'a', 'svc-sandbox-id': 'one', 'x-metadata-a_b': '1', 'x-forwarded-host': 'a' },
    ...{ 'x-route-to': '127.0.0.1:1234', via: expect.stringMatching(/^1\.1 envd-/) },
  });
  const own = await carry('/', { 'svc-sandbox-id': 'one', 'x-api-key': 'of the sandbox' });
  expect(own.headers).toMatchObject({ 'x-api-key': 'of the sandbox' });
});

test.each([
  '/init',
  '/INIT',
  '//init',
  '/a/../init',
  '/%2569nit',
  '/init?refusal=pass&target=/a',
  '/x/..;/init',
])('%s is closed behind Envoy, too', async (target) => {
  expect((await carry(target)).cluster).toBe('envd_gateway');
  const allowed = await carry(target, { 'svc-sandbox-id': 'one', 'x-api-key': API_KEY });
  expect(allowed.cluster).toBe('sandboxes');
});

test('no client says where a request goes', async () => {
  const forged = { 'x-route-to': '169.254.169.254:80', 'x-route-via': 'a', 'x-route-api-key': 'b' };
  for (const [more, expected] of [
    [{}, 'envd_gateway'],
    [{ 'svc-sandbox-id': 'unknown' }, 'envd_gateway'],
    [{ 'svc-sandbox-id': 'one' }, 'sandboxes'],
  ] as const) {
    const { cluster, headers } = await carry('/a', { ...forged, ...more });
    expect(cluster).toBe(expected);
    expect(headers['x-route-to']).toBe(expected === 'sandboxes' ? '127.0.0.1:1234' : undefined);
    for (const name of ['x-route-via', 'x-route-api-key', 'x-api-key'])
      expect(headers).not.toHaveProperty(name);
  }
});

test('what is refused reaches the gateway as it was sent, and a request that goes round is refused', async () => {
  const refused = await carry('/sandboxes', { 'x-api-key': API_KEY, via: '1.1 other' });
  expect(refused).toEqual({
    cluster: 'envd_gateway',
    headers: { host: 'a', 'x-forwarded-host': 'a', 'x-api-key': API_KEY, via: '1.1 other' },
  });
  const { via = '' } = (await carry('/a')).headers;
  const again = await carry('/a', { 'svc-sandbox-id': 'one', via });
  expect(again).toMatchObject({ cluster: 'envd_gateway', headers: { via } });
});
