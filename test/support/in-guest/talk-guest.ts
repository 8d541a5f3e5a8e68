import { spawn } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import type { Block, Outcome } from '../code/documents.ts';
import { startDaemon } from '../programs/daemon.ts';
import { envctlCommand, gatewayCommand } from '../programs/programs.ts';
import { until } from '../until.ts';

// Runs the blocks of a page, which it gets on standard input, one after the other in the working directory, against a
// daemon and a gateway at their usual ports. Run in namespaces of its own. Prints the outcomes as JSON.
const LIMIT_MS = 60_000;
const { PATH = '' } = process.env;
const here = process.cwd();
const [, , headerPrefix = ''] = process.argv;

const blocks = JSON.parse(await text(process.stdin)) as Block[];
const [definitions] = blocks.filter(({ language }) => language === 'sh');

// /proc cannot be frozen, the root file system of the tests' machine must not be.
const daemon = await startDaemon({ port: 49983, args: ['--fsfreeze-path=/proc'] });
const files = [`--registry=${here}/registry.db`, `--hook-directory=${here}/hooks`];
const local = ['--host=127.0.0.1', '--allow-addresses=127.0.0.0/8'];
const hooks = ['--hook=true', '--resume-hook=true'];
const flags = [...local, ...hooks, '--api-key=KEY', `--header-prefix=${headerPrefix}`, ...files];
const [program, ...before] = gatewayCommand();
const gateway = spawn(program, [...before, ...flags], { stdio: 'ignore' });
await until('the gateway answers', () => answers('http://localhost:49980/gateway/health'));

// As if it were installed.
mkdirSync(join(here, 'bin'));
writeFileSync(join(here, 'bin/envctl'), `#!/bin/sh\nexec '${envctlCommand().join("' '")}' "$@"\n`, {
  mode: 0o755,
});

const outcomes: Outcome[] = [];
for (const block of blocks) outcomes.push(await run(block));
gateway.kill();
await daemon.stop();
process.stdout.write(JSON.stringify(outcomes));
process.exit();

async function answers(url: string): Promise<boolean> {
  const response = await fetch(url).catch(() => null);
  return response?.status === 204;
}

async function run(block: Block): Promise<Outcome> {
  const { language, code } = block;
  if (language === 'html') return show(code);
  const beginning = block === definitions ? '' : definitions?.code;
  if (language === 'sh') return execute('bash', ['-c', `${beginning}\n${code}`]);
  const file = join(here, language === 'py' ? 'block.py' : 'block.mjs');
  writeFileSync(file, code);
  return execute(language === 'py' ? 'python3' : process.execPath, [file]);
}

async function execute(command: string, args: readonly string[]): Promise<Outcome> {
  const child = spawn(command, args, {
    stdio: ['ignore', 'pipe', 'pipe'],
    ...{ cwd: here, timeout: LIMIT_MS, env: { PATH: `${join(here, 'bin')}:${PATH}`, HOME: here } },
  });
  const exit = Promise.withResolvers<number | null>();
  child.once('exit', exit.resolve).once('error', exit.reject);
  try {
    const [stdout, stderr, exitCode] = await Promise.all([
      text(child.stdout),
      text(child.stderr),
      exit.promise,
    ]);
    return { exitCode, stdout, stderr };
  } catch (error) {
    // The program is missing: the test of this block says so.
    return { exitCode: null, stdout: '', stderr: String(error) };
  }
}

/** Opens the page, from an origin that is not the daemon's, and returns the text of its `pre`. */
async function show(page: string): Promise<Outcome> {
  const server = createServer((_, response) => response.setHeader('content-type', 'text/html').end(page));
  await new Promise<void>((resolve) => server.listen(8080, '127.0.0.1', resolve));
  const flags = [
    '--headless',
    '--no-sandbox',
    '--disable-gpu',
    '--no-first-run',
    `--user-data-dir=${here}/c`,
  ];
  const quiet = ['--disable-background-networking', '--disable-component-update', '--disable-sync'];
  const dump = ['--virtual-time-budget=20000', '--dump-dom', 'http://localhost:8080/'];
  const { stdout, ...others } = await execute('chromium', [...flags, ...quiet, ...dump]);
  server.close();
  server.closeAllConnections();
  return { ...others, stdout: /<pre>(.*?)<\/pre>/s.exec(stdout)?.[1] ?? stdout };
}
