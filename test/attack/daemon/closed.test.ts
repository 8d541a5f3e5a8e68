import { hash } from 'node:crypto';
import { chmodSync, existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { signFile } from '../../../src/conformance/suite/sign-file.ts';
import { Filesystem } from '../../../src/gen/filesystem/filesystem_pb.js';
import { Process } from '../../../src/gen/process/process_pb.js';
import { readOperations } from '../../support/code/openapi.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { owned } from '../../support/programs/owned.ts';
import { startSupervised } from '../../support/programs/supervised.ts';
import { startMetadataService } from '../../support/servers/metadata-service.ts';

/* A process of the guest reaches the daemon over loopback before the platform has called /init. */

const TOKEN = 'token-of-the-image';

type Call = readonly [method: string, path: string, init?: RequestInit];

const statusOf = async (daemon: TestDaemon, [method, path, init]: Call) =>
  (await fetch(daemon.url + path, { method, ...init })).status;

const init = (daemon: TestDaemon, body: object) =>
  fetch(`${daemon.url}/init`, { method: 'POST', body: JSON.stringify(body) });

const withToken = (token: string) => ({ headers: { 'x-access-token': token } });

/** Every operation that is documented, but the two that stay open. */
const OPERATIONS: readonly Call[] = [
  ...readOperations()
    .filter(({ path }) => path !== '/init' && path !== '/health')
    .map(({ method, path }): Call => [method, path]),
  ...[Process, Filesystem].flatMap((service) =>
    service.methods.map(
      ({ name }): Call => [
        'POST',
        `/${service.typeName}/${name}`,
        { headers: { 'content-type': 'application/json' }, body: '{}' },
      ],
    ),
  ),
];

/** Headers that a confused check could take for a token. */
const CREDENTIALS: readonly Record<string, string>[] = [
  {},
  { 'x-access-token': '' },
  { 'x-access-token': 'null' },
  { 'x-access-token': 'undefined' },
  { authorization: `Basic ${btoa('root:')}` },
  { authorization: 'Bearer null' },
];

const startClosed = (...args: readonly string[]) =>
  owned(startDaemon({ args: ['--require-token', ...args] }));

test('no operation is served before a token is set, whatever is shown in its place', async () => {
  const daemon = await startClosed();
  expect(OPERATIONS.length).toBeGreaterThan(25);
  for (const [method, path, one] of OPERATIONS)
    for (const shown of CREDENTIALS) {
      const headers = { ...one?.headers, ...shown };
      expect([method, path, shown, await statusOf(daemon, [method, path, { ...one, headers }])]).toEqual([
        ...[method, path, shown],
        401,
      ]);
    }
  expect(await statusOf(daemon, ['GET', '/health'])).toBe(204);
  expect(await statusOf(daemon, ['HEAD', '/health'])).toBe(204);
  expect(await statusOf(daemon, ['GET', '/health?verbose'])).toBe(401);
});

test('files are neither read nor written before a token is set, with a signature of any token or none', async () => {
  const daemon = await startClosed();
  const [secret, made] = [join(daemon.scratch, 'secret'), join(daemon.scratch, 'made')];
  writeFileSync(secret, 'secret');
  for (const token of ['', 'null', 'undefined']) {
    const query = (path: string, operation: 'read' | 'write' | 'read-archive' | 'write-archive') => {
      const signature = signFile({ path, operation, username: 'root', token });
      return new URLSearchParams({ path, username: 'root', signature });
    };
    const upload = (type: string) => ({ headers: { 'content-type': type }, body: 'x' });
    const calls: readonly Call[] = [
      ['GET', `/files?${query(secret, 'read')}`],
      ['HEAD', `/files?${query(secret, 'read')}`],
      ['GET', `/files?format=tar&${query(daemon.scratch, 'read-archive')}`],
      ['GET', `/files?format=zip&${query(daemon.scratch, 'read-archive')}`],
      ['POST', `/files?${query(made, 'write')}`, upload('application/octet-stream')],
      ['POST', `/files?${query(daemon.scratch, 'write-archive')}`, upload('application/x-tar')],
      ['POST', `/files?${query(made, 'write')}`, upload('text/plain')],
    ];
    for (const call of calls) expect([token, call, await statusOf(daemon, call)]).toEqual([token, call, 401]);
    const form = new FormData();
    form.append('file', new Blob(['x']), made);
    expect(await statusOf(daemon, ['POST', '/files?username=root', { body: form }])).toBe(401);
  }
  const response = await fetch(`${daemon.url}/files?path=${secret}`);
  expect([response.status, await response.text()]).toEqual([401, expect.not.stringContaining('secret"')]);
  expect(existsSync(made)).toBe(false);
});

test('unknown routes, other methods and other forms of a path say nothing before a token is set', async () => {
  const daemon = await startClosed();
  const paths = [
    '/',
    '/nothing',
    '/envs/',
    '//envs',
    '/ENVS',
    '/health/x',
    '/files/',
    '/%65nvs',
    '/envs?x',
    '/health/..',
  ];
  for (const path of paths)
    for (const method of ['GET', 'POST', 'PUT', 'DELETE', 'PATCH'])
      expect([method, path, await statusOf(daemon, [method, path])]).toEqual([method, path, 401]);
  for (const path of ['/health', '/init', '/files'])
    expect([path, await statusOf(daemon, ['PUT', path])]).toEqual([path, 401]);
});

test('a preflight is answered as ever, and opens nothing', async () => {
  const daemon = await startClosed();
  const headers = { origin: 'http://page.test', 'access-control-request-method': 'GET' };
  const preflight = await fetch(`${daemon.url}/envs`, { method: 'OPTIONS', headers });
  expect([preflight.status, await preflight.text()]).toEqual([204, '']);
  expect(await statusOf(daemon, ['GET', '/envs', { headers: { origin: 'http://page.test' } }])).toBe(401);
});

test('an /init without a token is refused and changes nothing; one with a token opens the daemon to its holder', async () => {
  const daemon = await startClosed();
  for (const body of [{}, { envVars: { EVIL: '1' } }, { accessToken: '' }, { accessToken: null }]) {
    const refused = await init(daemon, { ...body, envVars: { EVIL: '1' } });
    expect([refused.status, await refused.json()]).toEqual([
      401,
      {
        code: 401,
        message: expect.stringContaining('the daemon requires an access token: this call must set it'),
      },
    ]);
  }
  expect((await init(daemon, { accessToken: TOKEN })).status).toBe(204);
  const envs = await fetch(`${daemon.url}/envs`, withToken(TOKEN));
  expect([envs.status, await envs.json()]).toEqual([200, {}]);
  expect(await statusOf(daemon, ['GET', '/envs'])).toBe(401);
  expect((await init(daemon, { accessToken: 'another' })).status).toBe(401);
});

test('where the platform has published a hash, nobody else sets the first token; without a token it is closed again', async () => {
  await using service = await startMetadataService();
  service.metadata = { accessTokenHash: hash('sha512', TOKEN) };
  const daemon = await startClosed(`--metadata-service=${service.url}`);
  expect((await init(daemon, { accessToken: 'of the guest' })).status).toBe(401);
  expect((await init(daemon, { accessToken: TOKEN })).status).toBe(204);
  expect(await statusOf(daemon, ['GET', '/envs', withToken(TOKEN)])).toBe(200);
  service.metadata = { accessTokenHash: hash('sha512', '') };
  expect((await init(daemon, {})).status).toBe(204);
  for (const shown of [{}, withToken(TOKEN)])
    expect(await statusOf(daemon, ['GET', '/envs', shown])).toBe(401);
});

/** A file with a token, as an image has it. */
function tokenFile(content: string, mode = 0o400): string {
  const path = join(scratch(), 'token');
  writeFileSync(path, content);
  chmodSync(path, mode);
  return path;
}

test('with --token-file, a process of the guest can neither call nor set a token of its own', async () => {
  const file = tokenFile(`${TOKEN}\n`);
  const daemon = await owned(startDaemon({ args: [`--token-file=${file}`] }));
  expect(await statusOf(daemon, ['GET', '/envs'])).toBe(401);
  expect(await statusOf(daemon, ['GET', '/envs', withToken(TOKEN)])).toBe(200);
  expect((await init(daemon, { accessToken: 'of the guest' })).status).toBe(401);
  expect((await init(daemon, {})).status).toBe(401);
  expect((await init(daemon, { accessToken: TOKEN, defaultUser: 'root' })).status).toBe(204);
  expect(JSON.stringify(daemon.log)).not.toContain(TOKEN);
});

test('it stays closed through a crash and an upgrade', async () => {
  await using supervised = await startSupervised({ args: ['--require-token'] });
  const { daemon } = supervised;
  await supervised.crash();
  expect(await statusOf(daemon, ['GET', '/envs'])).toBe(401);
  expect((await init(daemon, { accessToken: TOKEN })).status).toBe(204);
  await supervised.upgrade({ 'x-access-token': TOKEN });
  expect(await statusOf(daemon, ['GET', '/envs'])).toBe(401);
  expect(await statusOf(daemon, ['GET', '/envs', withToken(TOKEN)])).toBe(200);
  await supervised.crash();
  expect(await statusOf(daemon, ['GET', '/envs'])).toBe(401);
  expect(await statusOf(daemon, ['GET', '/envs', withToken(TOKEN)])).toBe(200);
});
