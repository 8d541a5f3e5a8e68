import { execFileSync, spawnSync } from 'node:child_process';
import {
  cpSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { scratch } from '../support/machine/scratch.ts';
import { startDaemon } from '../support/programs/daemon.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

// It runs on other machines: nothing of the tree is in reach, no node_modules.
const elsewhere = mkdtempSync(join(tmpdir(), 'envctl-dist-'));
const program = join(elsewhere, 'bin/envctl');
/** What the launcher needs. No Node is in reach, as on the machine of a person. */
const bin = join(elsewhere, '.bin');
const env = { PATH: bin, HOME: elsewhere };

beforeAll(() => {
  execFileSync(process.execPath, [
    join(ROOT, 'systemd/image/build.ts'),
    'envctl',
    `--out=${elsewhere}.built`,
  ]);
  cpSync(`${elsewhere}.built/dist-envctl`, elsewhere, { recursive: true });
  mkdirSync(bin);
  for (const name of ['sh', 'cat', 'readlink']) symlinkSync(`/usr/bin/${name}`, join(bin, name));
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

test('a command loads its own part of the program, without the libraries of the others', () => {
  const script = join(elsewhere, 'lib/program.cjs');
  const list = 'process.on("exit", () => console.log(JSON.stringify(Object.keys(require.cache))))';
  const run = `process.argv = ['node', 'envctl', '--url', 'http://127.0.0.1:1', 'run', 'true'];`;
  const code = `${list}; ${run} require(${JSON.stringify(script)})`;
  const { stdout } = spawnSync(process.execPath, ['-e', code], { env, input: '', encoding: 'utf8' });
  const loaded: string[] = JSON.parse(stdout);
  const text = loaded.map((path) => readFileSync(path, 'utf8')).join('\n');
  expect(text).toContain('Run a command and stream its output');
  expect(text).not.toMatch(/List files|node:http2|node:zlib|ModelContextProtocol/);
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

test.each([
  [['--version'], 'version'],
  [['-V'], 'version'],
  [['--help'], 'help'],
  [['-h'], 'help'],
  [['man'], 'man'],
  [['completion', 'bash'], 'bash'],
  [['completion', 'zsh'], 'zsh'],
  [['completion', 'fish'], 'fish'],
])('it answers %j as its program does, without Node', (args, said) => {
  const alone = scratch();
  for (const part of ['bin/envctl', `lib/said/${said}`]) cpSync(join(elsewhere, part), join(alone, part));
  const answer = execFileSync(join(alone, 'bin/envctl'), args, { env, encoding: 'utf8' });
  const script = join(elsewhere, 'lib/program.cjs');
  expect(answer).toBe(execFileSync(process.execPath, [script, ...args], { env, encoding: 'utf8' }));
});

test('it has a version, a manual, completions, licences, and its own Node', () => {
  const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
  expect(execFileSync(program, ['--version'], { env, encoding: 'utf8' })).toBe(`${version}\n`);
  const files = globSync('**/*', { cwd: elsewhere }).filter(
    (path) => !path.startsWith('.') && statSync(join(elsewhere, path)).isFile(),
  );
  const isPart = (path: string) => /^lib\/program\/[\w-]+\.cjs$/.test(path);
  expect(files.filter(isPart)).not.toEqual([]);
  expect(files.filter((path) => !isPart(path)).sort()).toEqual(
    [
      ...['LICENSE', 'LICENSES', 'bin/envctl', 'lib/envctl', 'lib/envctl.cjs', 'lib/ld.so'],
      ...['atomic.so.1', 'c.so.6', 'dl.so.2', 'gcc_s.so.1', 'm.so.6', 'pthread.so.0', 'stdc++.so.6'].map(
        (name) => `lib/lib${name}`,
      ),
      ...['lib/program.cjs', 'package.json'],
      ...['bash', 'fish', 'help', 'man', 'version', 'zsh'].map((name) => `lib/said/${name}`),
      'share/bash-completion/completions/envctl',
      ...[
        'addon-webgl.js',
        'icon.svg',
        'index.html',
        'main.js',
        'plot-canvas.js',
        'screen.js',
        'style.css',
        'text-differences.js',
        'text-editor.js',
      ].map((name) => `share/console/${name}`),
      'share/fish/vendor_completions.d/envctl.fish',
      'share/man/man1/envctl.1',
      'share/zsh/site-functions/_envctl',
    ].sort(),
  );
  expect(readFileSync(join(elsewhere, 'share/man/man1/envctl.1'), 'utf8')).toMatch(/^\.TH ENVCTL 1/);
  const licences = readFileSync(join(elsewhere, 'LICENSES'), 'utf8');
  for (const name of [
    'commander',
    '@connectrpc/connect-node',
    '@bufbuild/protobuf',
    '@modelcontextprotocol/server',
    'zod',
    'preact',
    '@xterm/xterm',
    '@codemirror/view',
    'uplot',
    'libstdc++6',
  ])
    expect(licences).toContain(`${name} `);
  for (const name of ['fastify', 'chokidar', 'pino'])
    expect(licences).not.toMatch(new RegExp(`^${name} \\d`, 'm'));
});
