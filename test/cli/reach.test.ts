import { mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { scratch } from '../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../support/programs/daemon.ts';
import { envctl } from '../support/programs/envctl.ts';
import { API_KEY, startGateway, type TestGateway } from '../support/programs/gateway.ts';
import { owned } from '../support/programs/owned.ts';
import { init } from '../support/programs/sandbox.ts';
import { freePort } from '../support/servers/free-port.ts';

const TOKEN = 'tökén of the guest';
let daemon: TestDaemon;
let gateway: TestGateway;

beforeAll(async () => {
  [daemon, gateway] = await Promise.all([startDaemon(), startGateway()]);
  await init(daemon, { accessToken: TOKEN, defaultUser: 'root' });
  await gateway.register('box', daemon.port);
});
afterAll(async () => {
  for (const each of [gateway, daemon]) await each?.[Symbol.asyncDispose]();
});

const withToken = { env: { ENVCTL_TOKEN: TOKEN } };

test('health needs no token, and tells more with one', async () => {
  expect(await envctl(daemon.url, ['health'])).toMatchObject({ code: 0, stdout: 'healthy\n' });
  const { stdout } = await envctl(daemon.url, ['health', '--json'], withToken);
  expect(JSON.parse(stdout)).toMatchObject({
    healthy: true,
    version: expect.stringMatching(/^\d+\.\d+/),
    interface: '0.6.13',
    frozen: { workload: false, filesystem: false },
  });
});

test('doctor tells what is reachable, which version, what it can and the clock', async () => {
  const { code, stdout } = await envctl(daemon.url, ['doctor', '--json'], withToken);
  const { ok, checks } = JSON.parse(stdout);
  expect({ code, ok }).toEqual({ code: 0, ok: true });
  const names = checks.map(({ name }: { name: string }) => name);
  expect(names).toEqual(
    expect.arrayContaining([
      'reachable',
      'access',
      'round trip',
      'version',
      'frozen',
      'clock',
      'can: collapse',
    ]),
  );
  expect(checks.find(({ name }: { name: string }) => name === 'clock')).toMatchObject({ status: 'ok' });
});

test('doctor says which step fails, and exits as that failure', async () => {
  const { code, stdout } = await envctl(daemon.url, ['doctor']);
  expect(code).toBe(122);
  expect(stdout).toMatch(/ok +reachable/);
  expect(stdout).toMatch(
    /failed +access +unauthorized access.*; give the token with --token-file or ENVCTL_TOKEN/,
  );
});

test.each([
  ['nothing listens', async () => `http://127.0.0.1:${await freePort()}`, 121, /nothing listens there/],
  [
    'a server of something else',
    async () => `http://127.0.0.1:${await listenAs('SSH-2.0-x\r\n')}`,
    121,
    /no HTTP/,
  ],
  ['no token', async () => daemon.url, 122, /unauthorized access.*ENVCTL_TOKEN/],
  ['not a URL', async () => 'ftp://x', 120, /not a URL with http or https/],
])('a failure is one line with an exit code of its own: %s', async (_, url, code, line) => {
  const result = await envctl(await url(), ['ps']);
  expect(result).toMatchObject({ code, stdout: '' });
  expect(result.stderr).toMatch(line);
  expect(result.stderr).toMatch(/^envctl: [^\n]+\n$/);
});

async function listenAs(greeting: string): Promise<number> {
  const server = createServer((socket) => socket.on('error', () => {}).end(greeting));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  await owned(Promise.resolve({ [Symbol.asyncDispose]: async () => void server.close() }));
  return (server.address() as { port: number }).port;
}

test('with --json a failure is an object on standard error', async () => {
  const { code, stderr } = await envctl(daemon.url, ['ps', '--json']);
  expect(code).toBe(122);
  expect(JSON.parse(stderr)).toEqual({
    error: { reason: 'refused', exitCode: 122, message: expect.stringContaining('unauthorized access') },
  });
});

test('an unknown user is told as one', async () => {
  const { code, stderr } = await envctl(daemon.url, ['run', '--user', 'nobody-here', 'true'], withToken);
  expect({ code, stderr }).toEqual({ code: 122, stderr: "envctl: invalid username: 'nobody-here'\n" });
});

test('through a gateway, with the key that it wants', async () => {
  const through = { ENVCTL_GATEWAY: gateway.url, ENVCTL_SANDBOX: 'box', ENVCTL_TOKEN: TOKEN };
  expect(await envctl('', ['run', 'echo', 'there'], { env: through })).toMatchObject({
    code: 0,
    stdout: 'there\n',
  });
  const { ENVCTL_SANDBOX: _, ...others } = through;
  expect(await envctl('', ['run', '--sandbox', 'box', 'true'], { env: others })).toMatchObject({ code: 0 });
  const { code, stderr } = await envctl('', ['ps'], { env: { ...through, ENVCTL_SANDBOX: 'nosuch' } });
  expect(code).toBe(123);
  expect(stderr).toMatch(/nosuch|sandbox/);
  expect(stderr).not.toContain('HTTP 502');
});

test('contexts: the file is for its owner only, and keeps what was told', async () => {
  const directory = scratch();
  const env = { XDG_CONFIG_HOME: directory };
  const run = (...args: string[]) => envctl('', args, { env });
  const secret = join(directory, 'token');
  writeFileSync(secret, `${TOKEN}\n`);
  expect((await run('context', 'add', 'one', '--url', daemon.url, '--token-file', secret)).code).toBe(0);
  await run('context', 'add', 'two', '--gateway', gateway.url, '--sandbox', 'box', '--api-key', API_KEY);
  const file = join(directory, 'envctl/config.json');
  expect(statSync(file).mode & 0o777).toBe(0o600);
  expect(statSync(join(directory, 'envctl')).mode & 0o777).toBe(0o700);
  expect(await run('run', 'echo', 'by context')).toMatchObject({ stdout: 'by context\n', code: 0 });
  await run('context', 'use', 'two');
  const { stdout } = await run('context', 'list', '--json');
  expect(JSON.parse(stdout)).toEqual({
    current: 'two',
    contexts: [
      {
        name: 'one',
        url: daemon.url,
        gateway: null,
        sandbox: null,
        port: null,
        user: null,
        hasToken: true,
        hasApiKey: false,
      },
      {
        name: 'two',
        url: null,
        gateway: gateway.url,
        sandbox: 'box',
        port: null,
        user: null,
        hasToken: false,
        hasApiKey: true,
      },
    ],
  });
  expect(stdout).not.toContain(API_KEY);
  expect((await run('ps', '--context', 'one')).code).toBe(0);
  expect(await run('ps', '--context', 'three')).toMatchObject({ code: 120, stdout: '' });
  await run('context', 'remove', 'two');
  expect(JSON.parse((await run('context', 'list', '--json')).stdout)).toMatchObject({ current: null });
});

test('the token of a context never goes to another place', async () => {
  const directory = scratch();
  const heard: string[] = [];
  const server = createServer((socket) => {
    socket
      .on('error', () => {})
      .on('data', (data) => {
        heard.push(data.toString());
        socket.end('HTTP/1.1 500 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n');
      });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  await owned(Promise.resolve({ [Symbol.asyncDispose]: async () => void server.close() }));
  const place = `http://127.0.0.1:${(server.address() as { port: number }).port}`;
  mkdirSync(join(directory, 'envctl'));
  const settings = { url: daemon.url, token: 'secret-token', apiKey: 'secret-key' };
  writeFileSync(
    join(directory, 'envctl/config.json'),
    JSON.stringify({ current: 'a', contexts: { a: settings } }),
  );
  const env = { XDG_CONFIG_HOME: directory };
  for (const args of [
    ['--url', place],
    ['--gateway', place, '--sandbox', 'x'],
  ])
    expect((await envctl('', ['ps', ...args], { env })).code).toBe(125);
  await envctl(place, ['ps'], { env });
  expect(heard.length).toBeGreaterThanOrEqual(3);
  expect(heard.join('')).not.toContain('secret-');
  // The same place with a flag of its own is the same place.
  const { stderr } = await envctl('', ['ps', '--url', daemon.url], { env });
  expect(stderr).toContain('unauthorized access');
});

test('a file of contexts that is none is refused, and not overwritten', async () => {
  const directory = scratch();
  mkdirSync(join(directory, 'envctl'));
  const file = join(directory, 'envctl/config.json');
  writeFileSync(file, '{"contexts":7}');
  const result = await envctl('', ['context', 'add', 'x', '--url', daemon.url], {
    env: { XDG_CONFIG_HOME: directory },
  });
  expect(result).toMatchObject({ code: 125 });
  expect(result.stderr).toContain('is not a file of envctl');
  expect(readFileSync(file, 'utf8')).toBe('{"contexts":7}');
});
