import { mkdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { scratch } from '../support/machine/scratch.ts';
import { buildPage, startConsole } from '../support/programs/console.ts';
import { startDaemon, type TestDaemon } from '../support/programs/daemon.ts';
import { EnvctlTerminal, envctl } from '../support/programs/envctl.ts';
import { API_KEY, startGateway, type TestGateway } from '../support/programs/gateway.ts';
import { endLoopbackMachines, loopbackHook } from '../support/programs/loopback-machines.ts';
import { owned } from '../support/programs/owned.ts';
import { init } from '../support/programs/sandbox.ts';

const TOKEN = 'token-of-the-sandbox';
let daemon: TestDaemon;
let gateway: TestGateway;
beforeAll(async () => {
  // A prefix that is not the default one, and that nobody tells envctl.
  [daemon, gateway] = await Promise.all([startDaemon(), startGateway({ args: ['--header-prefix=E2b'] })]);
  await init(daemon, { accessToken: TOKEN, defaultUser: 'root' });
  await gateway.register('box', daemon.port, { envdAccessToken: TOKEN, timeout: 3600 });
});
afterAll(async () => {
  for (const each of [gateway, daemon]) await each?.[Symbol.asyncDispose]();
});

/** Only a gateway and a key are known. */
const withKey = (...args: string[]) => envctl('', ['--gateway', gateway.url, '--api-key', API_KEY, ...args]);

describe('with a gateway and a key alone', () => {
  test('run finds the token of the sandbox that is named before --', async () => {
    expect(await withKey('run', 'box', '--', 'echo', 'roses')).toMatchObject({ code: 0, stdout: 'roses\n' });
    expect(await withKey('run', '--sandbox', 'box', 'echo', '--', 'x')).toMatchObject({ stdout: '-- x\n' });
    const none = await withKey('run', 'echo', 'roses');
    expect(none).toMatchObject({ code: 120 });
    expect(none.stderr).toContain('envctl run ID -- COMMAND');
    expect(await withKey('run', 'nobody', '--', 'true')).toMatchObject({ code: 123 });
  });

  test('shell takes the id of a sandbox', async () => {
    const env = { ENVCTL_GATEWAY: gateway.url, ENVCTL_API_KEY: API_KEY };
    const terminal = new EnvctlTerminal('', ['shell', 'box', '-c', 'echo $((6 * 7))'], env);
    expect(await terminal.exit).toBe(0);
    expect(terminal.screen).toContain('42');
    const both = await withKey('shell', 'box', '--sandbox', 'other');
    expect(both).toMatchObject({ code: 120, stderr: expect.stringContaining("'box'") });
  });

  test('attach shows the screen of a program that its first terminal has left', async () => {
    const env = { ENVCTL_GATEWAY: gateway.url, ENVCTL_API_KEY: API_KEY, ENVCTL_SANDBOX: 'box' };
    writeFileSync(join(daemon.scratch, 'text'), 'rose\ntulip\n');
    const script = `head -c 3000000 /dev/zero | tr '\\0' x; exec vi -u NONE -N ${daemon.scratch}/text`;
    const first = new EnvctlTerminal('', ['run', '-t', '--tag', 'editor', 'sh', '-c', script], env);
    await first.shows(/rose[\s\S]*tulip/);
    first.type('Alily\x1b');
    await first.shows(/lily/);
    first.type('\x1dd');
    expect(await first.exit).toBe(0);
    const next = new EnvctlTerminal('', ['attach', 'editor'], env);
    // biome-ignore lint/suspicious/noControlCharactersInRegex: This is the alternate screen.
    await next.shows(/\x1b\[\?(\d+;)*1049[;h][\s\S]*roselily[\s\S]*tulip/);
    next.type(':q!\r');
    expect(await next.exit).toBe(0);
  });

  test('cp takes ID:PATH', async () => {
    const directory = scratch();
    writeFileSync(join(directory, 'rose'), 'red');
    const copied = await withKey('cp', '-q', join(directory, 'rose'), `box:${daemon.scratch}/rose`);
    expect(copied).toMatchObject({ code: 0 });
    expect(await withKey('cat', '--sandbox', 'box', `${daemon.scratch}/rose`)).toMatchObject({
      stdout: 'red',
    });
    const unknown = await envctl(daemon.url, ['cp', 'box:x', directory]);
    expect(unknown).toMatchObject({ code: 120, stderr: expect.stringContaining("no context 'box'") });
  });

  test('console takes the id of a sandbox', async () => {
    const env = { ENVCTL_GATEWAY: gateway.url, ENVCTL_API_KEY: API_KEY };
    buildPage();
    const served = await owned(startConsole('', ['box'], { env }));
    const { origin, hash } = new URL(served.link);
    const exchanged = await fetch(`${origin}/session`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', origin },
      body: JSON.stringify({ secret: hash.slice(1) }),
    });
    expect(await exchanged.json()).toMatchObject({ about: { sandbox: 'box' } });
  });

  test('health is that of the sandbox, not of the gateway', async () => {
    expect(await withKey('health', '--sandbox', 'box')).toMatchObject({
      stdout: expect.stringMatching(/^healthy {2}envd /),
    });
    expect(await withKey('health', '--sandbox', 'nobody')).toMatchObject({ code: 123 });
  });

  test('a wrong prefix is told with the right one', async () => {
    const { code, stderr } = await withKey('--header-prefix', 'Svc', 'ps', '--sandbox', 'box');
    expect(code).toBe(120);
    expect(stderr).toContain('--header-prefix E2b');
  });

  test('sandboxes info shows one, and its token on request', async () => {
    const shown = await withKey('sandboxes', 'info', 'box');
    expect(shown).toMatchObject({ code: 0, stdout: expect.stringMatching(/^state +running$/m) });
    expect(shown.stdout).not.toContain(TOKEN);
    const { stdout } = await withKey('sandboxes', 'info', 'box', '--secrets', '--json');
    expect(JSON.parse(stdout)).toMatchObject({ sandboxID: 'box', envdAccessToken: TOKEN });
    expect(await withKey('sandboxes', 'info', 'nobody')).toMatchObject({ code: 123 });
  });
});

test('sandboxes create makes one by its template, and opens a shell in it', async () => {
  const directory = scratch();
  const hook = loopbackHook(directory);
  const made = await owned(
    startGateway({ args: ['create-hook', 'kill-hook'].map((name) => `--${name}=${hook}`) }),
  );
  onTestFinished(() => endLoopbackMachines(directory));
  const env = { ENVCTL_GATEWAY: made.url, ENVCTL_API_KEY: API_KEY };
  const { code, stdout, stderr } = await envctl(
    '',
    ['sandboxes', 'create', 'roses', '--timeout', '10m', '--metadata', 'a=b', '-e', 'C=d'],
    { env },
  );
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  const { body } = await made.call(`GET /sandboxes/${stdout.trim()}`);
  expect(body).toMatchObject({ templateID: 'roses', metadata: { a: 'b' }, state: 'running' });
  const terminal = new EnvctlTerminal('', ['sandboxes', 'create', '--shell', '-e', 'PS1=$ '], env);
  await terminal.shows(/[#$>] ?$/);
  terminal.type('echo "[$((6 * 7))]"; exit 4\r');
  expect(await terminal.exit).toBe(4);
  expect(terminal.screen).toContain('[42]');
  expect((await made.call('GET /sandboxes?limit=10')).body).toHaveLength(2);
});

describe('options and variables together', () => {
  const token = { ENVCTL_TOKEN: TOKEN };

  test('a token of the environment goes to the URL of an option with the same host and port', async () => {
    const place = new URL(daemon.url).host;
    for (const written of [`http://${place}/`, place]) {
      const env = { ...token, ENVCTL_URL: daemon.url };
      expect(await envctl('', ['--url', written, 'ps'], { env })).toMatchObject({ code: 0 });
    }
  });

  test('the key of the environment goes to the same gateway, with another sandbox', async () => {
    const env = {
      ENVCTL_GATEWAY: gateway.url,
      ENVCTL_API_KEY: API_KEY,
      ENVCTL_SANDBOX: 'other',
      ENVCTL_TOKEN: 'x',
    };
    const flags = ['--gateway', `${gateway.url}/`, '--sandbox', 'box'];
    expect(await envctl('', [...flags, 'ps'], { env })).toMatchObject({ code: 0 });
  });

  test('what was not used is told with the reason', async () => {
    const env = { ...token, ENVCTL_URL: 'http://127.0.0.1:1' };
    const { code, stderr } = await envctl('', ['--url', daemon.url, 'ps'], { env });
    expect(code).toBe(122);
    expect(stderr).toContain('the token of ENVCTL_TOKEN was not used, because it is for http://127.0.0.1:1');
    const home = scratch();
    mkdirSync(join(home, 'envctl'));
    const contexts = { dev: { url: 'http://127.0.0.1:1', token: TOKEN } };
    writeFileSync(join(home, 'envctl/config.json'), JSON.stringify({ current: 'dev', contexts }));
    const other = await envctl(daemon.url, ['ps'], { env: { XDG_CONFIG_HOME: home } });
    expect(other.stderr).toContain(
      "the token of the context 'dev' was not used, because it is for http://127.0.0.1:1",
    );
    expect(other.stderr).not.toContain(TOKEN);
  });
});

describe('doors of other houses', () => {
  test('https to a plain port', async () => {
    const { code, stderr } = await envctl(daemon.url.replace('http:', 'https:'), ['ps']);
    expect(code).toBe(121);
    expect(stderr).toMatch(/does not speak TLS: try http:/);
  });

  test('the URL of a console', async () => {
    const { code, stderr } = await envctl('http://127.0.0.1:40000/#c2VjcmV0', ['ps']);
    expect(code).toBe(120);
    expect(stderr).toMatch(/address of a console/);
  });

  test('a gateway of another make, which tells neither token nor prefix', async () => {
    const asked: string[] = [];
    const server = createServer((request, response) => {
      asked.push(`${request.method} ${request.url} ${request.headers['svc-sandbox-id'] ?? '-'}`);
      response.writeHead(request.headers['svc-sandbox-id'] ? 204 : 404).end();
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const { code } = await envctl('', ['--gateway', url, '--api-key', 'k', '--sandbox', 'box', 'health']);
    server.close();
    expect(code).toBe(0);
    expect(asked).toContain('GET /health box');
  });
});
