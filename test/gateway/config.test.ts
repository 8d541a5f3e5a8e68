import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { expect, test } from 'vitest';
import { readGatewayConfig } from '../../src/gateway/config/config.ts';
import { scratch } from '../support/machine/scratch.ts';
import { gatewayCommand } from '../support/programs/programs.ts';

const [program, ...before] = gatewayCommand();

const KEY = ['--api-key=k'];

function config(argv: readonly string[], env: Readonly<Record<string, string>> = {}) {
  const invocation = readGatewayConfig(argv, env);
  if (!('run' in invocation)) throw new Error(invocation.output);
  return invocation.run;
}

test('flags that are missing have defaults', () => {
  expect(config(KEY)).toMatchObject({
    ...{ host: '0.0.0.0', port: 49980, headerPrefix: 'Svc', onExpiry: 'pause', defaultTimeout: 300 },
    ...{ registry: '/var/lib/envd-gateway/registry.db', redis: null, hook: null, hookTimeout: 60 },
    ...{
      killHook: null,
      resumeHook: null,
      createHook: null,
      hookSecret: null,
      resumeWait: 30,
      maxWaiting: 1024,
      maxResumes: 64,
      maxCreates: 64,
    },
    ...{ maxRequests: 4096, maxExpiries: 128, maxExpiriesPerHost: 16, drain: 5, responseTimeout: 600 },
    ...{
      keyFile: null,
      domain: null,
      idleTimeout: null,
      requireKey: false,
      allowAddresses: null,
      allowPorts: [[1, 65535]],
    },
  });
});

test('a flag goes before its variable', () => {
  const env = { ENVD_GATEWAY_API_KEY: 'of the environment', ENVD_GATEWAY_PORT: '1', ENVD_GATEWAY_HOOK: '' };
  expect(config([], env)).toMatchObject({ apiKey: 'of the environment', port: 1, hook: null });
  expect(config([...KEY, '--port=2'], env)).toMatchObject({ apiKey: 'k', port: 2 });
});

test('a pause without memory needs the hooks that make it', () => {
  expect(config(KEY).pauseKeeps).toEqual(['memory']);
  const hooks = ['--hook=true', '--resume-hook=true'];
  expect(config([...KEY, ...hooks, '--pause-keeps=memory,disk']).pauseKeeps).toEqual(['memory', 'disk']);
  for (const [index] of hooks.entries())
    expect(() => config([...KEY, hooks[index] ?? '', '--pause-keeps=disk'])).toThrow(
      "needs '--hook' and '--resume-hook'",
    );
  expect(() => config([...KEY, ...hooks, '--pause-keeps=all'])).toThrow('must be memory, disk');
});

test('a hook is a command or a URL', () => {
  for (const hook of [
    'pause-vm "$SANDBOX_ID"',
    'curl http://a.test/',
    'a:b',
    'https://u:p@a.test:8443/x?y=1',
  ])
    expect(config([...KEY, `--hook=${hook}`]).hook).toBe(hook);
  expect(config([...KEY, '--hook=HTTP://A.test']).hook).toBe('http://a.test/');
  expect(config([...KEY, '--hook= https://a.test/b ']).hook).toBe('https://a.test/b');
  expect(() => config([...KEY, '--hook= ftp://a.test/'])).toThrow(/must be a command, or a URL/);
});

test('with Redis there is no registry file', () => {
  const redis = 'redis://127.0.0.1:6379/1';
  expect(config([...KEY, `--redis=${redis}`])).toMatchObject({ redis, registry: null, redisSentinels: null });
  const nodes = ['--redis-cluster=n1,[::1]:7000'];
  expect(config([...KEY, `--redis=${redis}`, ...nodes])).toMatchObject({
    ...{ redis, redisCluster: ['n1:6379', '[::1]:7000'], redisReplicas: 1 },
  });
});

test('Sentinels are URLs, with the usual port unless told otherwise', () => {
  const list = '--redis-sentinels=a,10.0.0.1:1,[fd00::1],rediss://u:p@b:2';
  expect(config([...KEY, '--redis=redis://registry/1', list]).redisSentinels).toEqual([
    ...['redis://a:26379', 'redis://10.0.0.1:1', 'redis://[fd00::1]:26379', 'rediss://u:p@b:2'],
  ]);
});

test('a change waits for a replica where Sentinels could make one the master, unless told otherwise', () => {
  const replicas = (...args: readonly string[]) => config([...KEY, ...args]).redisReplicas;
  const redis = '--redis=redis://registry';
  expect(replicas()).toBe(0);
  expect(replicas(redis)).toBe(0);
  expect(replicas(redis, '--redis-sentinels=a')).toBe(1);
  expect(replicas(redis, '--redis-sentinels=a', '--redis-replicas=0')).toBe(0);
  expect(replicas(redis, '--redis-replicas=2')).toBe(2);
});

test.each([
  [[], /one of '--api-key <key>' and '--key-file <file>' must be given/],
  [['--api-key='], /must not be empty/],
  [[...KEY, '--redis=redis://a', '--registry=/b'], /cannot be used with option '--redis/],
  [[...KEY, '--redis=http://a'], /redis:\/\//],
  [[...KEY, '--redis=redis://a', '--redis-sentinels=http://b'], /HOST:PORT/],
  [[...KEY, '--redis=redis://a', '--redis-sentinels=b,'], /HOST:PORT/],
  [[...KEY, '--redis=redis://a', '--redis-sentinels=b/1'], /HOST:PORT/],
  [[...KEY, '--redis-sentinels=b'], /needs '--redis <url>'/],
  [[...KEY, '--redis-replicas=1'], /needs '--redis <url>'/],
  [[...KEY, '--redis=redis://a', '--redis-replicas=10'], /from 0 to 9/],
  [[...KEY, '--registry=b'], /absolute path/],
  [[...KEY, '--header-prefix=a b'], /letters and digits/],
  [[...KEY, '--hook-secret=secret'], /must be whsec_ and 24 to 64 bytes/],
  [[...KEY, `--hook-secret=whsec_${Buffer.alloc(23).toString('base64')}`], /must be whsec_/],
  [[...KEY, `--hook-secret=whsec_${Buffer.alloc(65).toString('base64')}`], /must be whsec_/],
  ...[
    ...[
      'http://',
      'https:/a.test/',
      'http:///hook',
      'http://a.test:0/',
      'http://a.test:99999/',
      'http://a b/',
    ],
    ...['ftp://a.test/', 'http://a.test/#part', 'HTTP://'],
  ].flatMap((hook) =>
    ['--hook', '--kill-hook', '--resume-hook', '--create-hook'].map(
      (flag) => [[...KEY, `${flag}=${hook}`], /must be a command, or a URL/] as [string[], RegExp],
    ),
  ),
  [[...KEY, '--resume-wait=0'], /from 1 to/],
  [[...KEY, '--domain=.a'], /must be a host name/],
  [[...KEY, '--domain=ä.test'], /must be a host name/],
  [[...KEY, '--domain=a.test:80'], /must be a host name/],
  [[...KEY, '--port=70000'], /from 0 to 65535/],
  [[...KEY, '--hook-timeout=0'], /from 1 to/],
  [[...KEY, '--max-requests=0'], /at least 1/],
  [['--key-file=keys'], /absolute path/],
  [[...KEY, '--allow-ports=0'], /ports or ranges/],
  [[...KEY, '--allow-ports=9-8'], /ports or ranges/],
  [[...KEY, '--allow-addresses=10.0.0.0/33'], /IP addresses or ranges/],
  [[...KEY, '--allow-addresses=10.0.0.1,a'], /IP addresses or ranges/],
  [[...KEY, '--on-expiry=burn'], /Allowed choices are pause, remove/],
  [[...KEY, 'more'], /too many arguments/],
  ...['--drain', '--response-timeout', '--hook-timeout', '--resume-wait', '--redis-wait'].map(
    (flag) => [[...KEY, `${flag}=86401`], /seconds from [01] to 86400, a day/] as [string[], RegExp],
  ),
])('%j is refused in words, with exit code 2', (argv, message) => {
  expect(readGatewayConfig(argv, {})).toEqual({ exitCode: 2, output: expect.stringMatching(message) });
});

test('ranges are lists', () => {
  expect(config([...KEY, '--allow-addresses=10.0.0.0/8, fd00::1', '--allow-ports=80,90-99'])).toMatchObject({
    allowAddresses: [
      { address: '10.0.0.0', prefix: 8 },
      { address: 'fd00::1', prefix: null },
    ],
    allowPorts: [
      [80, 80],
      [90, 99],
    ],
  });
});

test('--help tells defaults as flags are written', () => {
  const { output } = readGatewayConfig(['--help'], {}) as { readonly output: string };
  expect(output.replace(/\s+/g, ' ')).toContain('(ENVD_GATEWAY_ALLOW_PORTS) (default: 1-65535)');
});

test('--help has every flag under the heading of its subject', () => {
  const { output } = readGatewayConfig(['--help'], {}) as { readonly output: string };
  const headings = [...output.matchAll(/^(\S.*):$/gm)].map(([, heading]) => heading);
  expect(headings).toEqual(['Options', 'Basics', 'Who and where', 'Limits', 'Expiry and hooks', 'Registry']);
  const common = output.split(/^Options:$/m)[1]?.split(/^Basics:$/m)[0] ?? '';
  expect([...common.matchAll(/--[a-z-]+/g)].map(([flag]) => flag)).toEqual(['--version', '--help']);
});

test('--help and --version are no errors', () => {
  for (const flag of ['--help', '--version'])
    expect(readGatewayConfig([flag], {})).toMatchObject({ exitCode: 0 });
});

test('a registry and hook runs where the kernel has files are refused, at once', () => {
  const start = (...args: readonly string[]) => {
    const { status, stderr } = spawnSync(
      program,
      [...before, ...KEY, '--host=127.0.0.1', '--port=0', ...args],
      {
        ...{ encoding: 'utf8', timeout: 120_000 },
      },
    );
    return { status, stderr };
  };
  const refused = { status: 2, stderr: expect.stringContaining('is in a file system of the kernel (proc)') };
  expect(start('--registry=/proc/envd/registry.db')).toEqual(refused);
  expect(start('--registry=/proc/registry.db')).toEqual(refused);
  const registry = `--registry=${scratch()}/registry.db`;
  expect(start(registry, '--hook=true', '--hook-directory=/proc/envd/hooks')).toEqual(refused);
});

test('a port that is taken: a sentence and exit code 1, an address of others: exit code 2', async () => {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const start = (...args: readonly string[]) => {
    const files = [`--registry=${scratch()}/registry.db`, `--hook-directory=${scratch()}`];
    const { status, stderr } = spawnSync(program, [...before, ...KEY, ...files, ...args], {
      encoding: 'utf8',
    });
    return { status, stderr };
  };
  expect(start('--host=127.0.0.1', `--port=${port}`)).toEqual({
    status: 1,
    stderr: `envd-gateway: cannot listen on 127.0.0.1 port ${port}: the port is taken\n`,
  });
  expect(start('--host=192.0.2.1', '--port=0')).toEqual({
    status: 2,
    stderr: 'envd-gateway: cannot listen on 192.0.2.1 port 0: EADDRNOTAVAIL\n',
  });
  server.close();
});
