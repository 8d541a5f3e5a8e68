import { beforeEach, expect, test } from 'vitest';
import { startGateway, type TestGateway, toSandbox } from '../../support/programs/gateway.ts';
import { owned } from '../../support/programs/owned.ts';
import { type RawSandbox, startRawSandbox } from '../../support/programs/raw-sandbox.ts';
import { startNginx } from '../../support/servers/nginx.ts';

const OBEYED = [
  ...['x-accel-redirect: /.envd-head-too-large', 'x-accel-buffering: yes', 'x-accel-limit-rate: 1'],
  ...['x-accel-expires: 60', 'x-sendfile: /etc/passwd'],
];
const answer = (...lines: readonly string[]) =>
  ['HTTP/1.1 200 OK', 'content-length: 2', 'connection: close', ...lines, '', 'ok'].join('\r\n');

let gateway: TestGateway;
let sandbox: RawSandbox;

beforeEach(async () => {
  gateway = await owned(startGateway());
  sandbox = await owned(startRawSandbox((socket) => socket.end(answer(...OBEYED))));
  await gateway.register('box', sandbox.port, { timeout: 600 });
});

test('the gateway passes on nothing that servers in front obey, and says what the answer depends on', async () => {
  const { headers } = await fetch(gateway.url, { headers: toSandbox('box') });
  expect([...headers.keys()].filter((name) => /accel|sendfile/.test(name))).toEqual([]);
  expect(headers.get('vary')).toBe('Svc-Sandbox-Id, Svc-Sandbox-Port, X-API-Key');
  sandbox.behaviour = (socket) => socket.end(answer('vary: Accept'));
  expect((await fetch(gateway.url, { headers: toSandbox('box') })).headers.get('vary')).toBe(
    'Accept, Svc-Sandbox-Id, Svc-Sandbox-Port, X-API-Key',
  );
});

test('nginx obeys nothing that a sandbox answers, takes long heads, and refuses in the shape of the contract', async () => {
  const nginx = await owned(startNginx(gateway.port));
  const ask = (path = '/', headers: Readonly<Record<string, string>> = {}) =>
    fetch(`http://127.0.0.1:${nginx.port}${path}`, { headers: { ...toSandbox('box'), ...headers } });
  const obeyed = await ask();
  expect([obeyed.status, await obeyed.text()]).toEqual([200, 'ok']);
  expect(obeyed.headers.get('vary')).toContain('Svc-Sandbox-Id');
  sandbox.behaviour = (socket) => socket.end(answer(`x-long: ${'a'.repeat(12_000)}`));
  const long = await ask();
  expect([long.status, long.headers.get('x-long')?.length]).toEqual([200, 12_000]);
  sandbox.behaviour = (socket) => socket.end(answer());
  for (const [path, headers] of [
    [`/${'q'.repeat(38_000)}`, {}],
    ['/', { 'x-large': 'h'.repeat(38_000) }],
  ] as const) {
    const fits = await ask(path, headers);
    expect([fits.status, await fits.text()]).toEqual([200, 'ok']);
    const tooLarge = await ask(path, { ...headers, 'x-more': 'm'.repeat(4000) });
    expect([tooLarge.status, await tooLarge.json()]).toMatchObject([431, { code: 431 }]);
  }
  const tooLong = await ask(`/${'q'.repeat(50_000)}`);
  expect([tooLong.status, await tooLong.json()]).toMatchObject([431, { code: 431 }]);
  await gateway.kill();
  const refused = await ask();
  expect([refused.status, refused.headers.get('content-type')]).toEqual([
    502,
    'application/json; charset=utf-8',
  ]);
  expect(await refused.json()).toEqual({ message: expect.any(String), code: 502 });
});
