import { execFileSync } from 'node:child_process';
import { cpSync, globSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { builtinModules } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { acceptsCode } from '../support/code/code.ts';
import { startGateway, type TestGateway, toSandbox } from '../support/programs/gateway.ts';
import { startGuests } from '../support/programs/guests.ts';
import { hookCalls, phase, record } from '../support/servers/hook.ts';
import { startRedis } from '../support/servers/redis-server.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

// It runs on other machines: nothing of the tree is in reach, no node_modules, no Node.
const elsewhere = mkdtempSync(join(tmpdir(), 'envd-gateway-dist-'));
const program = join(elsewhere, 'bin/envd-gateway');
let gateway: TestGateway;
const told = `${elsewhere}.told`;

beforeAll(async () => {
  execFileSync(process.execPath, [join(ROOT, 'systemd/image/build.ts'), 'gateway']);
  cpSync(join(ROOT, 'dist-gateway'), elsewhere, { recursive: true });
  gateway = await startGateway({ command: [program], args: [`--hook=${record(told)}`] });
});
afterAll(async () => {
  await gateway?.[Symbol.asyncDispose]();
  for (const path of [elsewhere, told]) rmSync(path, { recursive: true, force: true });
});

/** The packages that sources below these directories import. */
function imported(...directories: readonly string[]): ReadonlySet<string> {
  const files = directories.flatMap((directory) => globSync(`src/${directory}/**/*.ts`, { cwd: ROOT }));
  const names = files.flatMap((file) =>
    Array.from(
      readFileSync(join(ROOT, file), 'utf8').matchAll(/(?:from|import\() ?'(@[\w-]+\/[\w-]+|[\w-]+)/g),
      ([, name = '']) => name,
    ),
  );
  return new Set(names.filter((name) => name !== 'node' && !builtinModules.includes(name)));
}

test('a sandbox is registered, reached, expired and told to the hook', async () => {
  await using guests = await startGuests(1);
  await gateway.register('one', guests.ports[0] ?? 0, { timeout: 600 });
  expect((await fetch(`${gateway.url}/health`, { headers: toSandbox('one') })).status).toBe(204);
  await gateway.call('POST /sandboxes/one/timeout', { timeout: 0 });
  await phase(gateway, 'one', 'paused');
  expect(hookCalls(told).map(({ sandboxID }) => sandboxID)).toEqual(['one']);
  expect((await gateway.call('GET /gateway/metrics')).text).toContain('envd_gateway_expiries_total');
});

test('with Redis too, whose client is loaded later', async () => {
  await using redis = await startRedis();
  await using shared = await startGateway({ command: [program], args: [`--redis=${redis.url}`] });
  await shared.register('one', 1);
  expect((await shared.call('GET /sandboxes')).body).toHaveLength(1);
});

test('it has a version, a unit, a configuration of nginx, and nothing else', () => {
  const print = execFileSync(program, ['--version'], { env: { PATH: '' }, encoding: 'utf8' });
  const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
  expect(print).toBe(`${version}\n`);
  expect(readdirSync(elsewhere).sort()).toEqual([
    ...['LICENSE', 'LICENSES', 'bin', 'lib', 'package.json', 'share', 'systemd'],
  ]);
  expect(readdirSync(join(elsewhere, 'systemd')).sort()).toEqual(['envd-gateway.service', 'nginx.conf']);
  expect(readFileSync(join(elsewhere, 'systemd/envd-gateway.service'), 'utf8')).toContain(
    'ExecStart=/opt/envd-gateway/bin/envd-gateway\n',
  );
});

test('V8 accepts the code that was compiled at the build, which any user may read', () => {
  expect(statSync(join(elsewhere, 'lib/envd-gateway.code')).mode & 0o777).toBe(0o644);
  expect(acceptsCode(elsewhere, 'envd-gateway')).toBe(true);
});

test('no package of the daemon alone is in it', () => {
  const licences = readFileSync(join(elsewhere, 'LICENSES'), 'utf8');
  const [ours, theirs] = [imported('gateway', 'base'), imported('daemon', 'gen')];
  const isIn = (name: string) => new RegExp(`^${name.replace('/', '\\/')} \\d`, 'm').test(licences);
  expect([...ours].filter((name) => !isIn(name))).toEqual([]);
  const daemons = [...theirs].filter((name) => !ours.has(name));
  expect(daemons).toEqual(expect.arrayContaining(['@connectrpc/connect', 'chokidar']));
  expect(daemons.filter(isIn)).toEqual([]);
});
