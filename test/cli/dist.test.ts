import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, globSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startDaemon } from '../support/programs/daemon.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

// It runs on other machines: nothing of the tree is in reach, no node_modules.
const elsewhere = mkdtempSync(join(tmpdir(), 'envctl-dist-'));
const program = join(elsewhere, 'bin/envctl');
const env = { PATH: `${dirname(process.execPath)}:/usr/bin:/bin`, HOME: elsewhere };

beforeAll(() => {
  execFileSync(process.execPath, [
    join(ROOT, 'systemd/image/build.ts'),
    'envctl',
    `--out=${elsewhere}.built`,
  ]);
  cpSync(`${elsewhere}.built/dist-envctl`, elsewhere, { recursive: true });
});
afterAll(() => {
  for (const path of [elsewhere, `${elsewhere}.built`]) rmSync(path, { recursive: true, force: true });
});

test('it runs a command in a sandbox', async () => {
  await using daemon = await startDaemon();
  const { stdout, status } = spawnSync(program, ['--url', daemon.url, 'run', 'sh', '-c', 'echo hi; exit 3'], {
    env,
    input: '',
  });
  expect({ stdout: stdout.toString(), status }).toEqual({ stdout: 'hi\n', status: 3 });
});

test('it holds a daemon to the wire contract', async () => {
  await using daemon = await startDaemon();
  const args = ['--url', daemon.url, 'conformance', '--json', '--only', '1', '--only', '++'];
  const { stdout, status } = spawnSync(program, args, { env, encoding: 'utf8' });
  expect(status).toBe(0);
  const lines = stdout.trimEnd().split('\n');
  expect(JSON.parse(lines.pop() ?? '')).toMatchObject({ failed: 0, passed: expect.any(Number) });
  expect(lines.length).toBeGreaterThan(30);
});

test('it has a version, a manual, completions and licences, and is small', () => {
  const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
  expect(execFileSync(program, ['--version'], { env, encoding: 'utf8' })).toBe(`${version}\n`);
  const files = globSync('**/*', { cwd: elsewhere }).filter(
    (path) => !path.startsWith('.') && statSync(join(elsewhere, path)).isFile(),
  );
  expect(files.sort()).toEqual([
    ...['LICENSE', 'LICENSES', 'bin/envctl', 'lib/envctl.cjs', 'lib/program.cjs', 'package.json'],
    'share/bash-completion/completions/envctl',
    ...[
      'addon-webgl.js',
      'icon.svg',
      'index.html',
      'main.js',
      'plot-canvas.js',
      'screen.js',
      'style.css',
    ].map((name) => `share/console/${name}`),
    'share/fish/vendor_completions.d/envctl.fish',
    'share/man/man1/envctl.1',
    'share/zsh/site-functions/_envctl',
  ]);
  expect(readFileSync(join(elsewhere, 'share/man/man1/envctl.1'), 'utf8')).toMatch(/^\.TH ENVCTL 1/);
  const size = files.reduce((sum, path) => sum + statSync(join(elsewhere, path)).size, 0);
  expect(size).toBeLessThan(2 * 1024 * 1024);
  const licences = readFileSync(join(elsewhere, 'LICENSES'), 'utf8');
  for (const name of [
    'commander',
    '@connectrpc/connect-node',
    '@bufbuild/protobuf',
    'preact',
    '@xterm/xterm',
    'uplot',
  ])
    expect(licences).toContain(`${name} `);
  for (const name of ['fastify', 'chokidar', 'pino'])
    expect(licences).not.toMatch(new RegExp(`^${name} \\d`, 'm'));
});

test('an old Node, or none, is told', () => {
  const old = spawnSync('sh', ['-c', `exec "${program}" ps`], {
    env: { ...env, ENVCTL_NODE: '/nonexistent/node' },
  });
  expect(old.status).toBe(120);
  expect(old.stderr.toString()).toContain('install Node 24 or newer');
  const script = `Object.defineProperty(process.versions, 'node', { value: '18.1.0' }); require(${JSON.stringify(join(elsewhere, 'lib/envctl.cjs'))});`;
  const older = spawnSync(process.execPath, ['-e', script], { env });
  expect(older.status).toBe(120);
  expect(older.stderr.toString()).toMatch(/^envctl: needs Node 24 or newer/);
});
