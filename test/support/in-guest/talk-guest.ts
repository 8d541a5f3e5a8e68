import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { type Block, type Outcome, startsGateway } from '../code/documents.ts';
import { startDaemon } from '../programs/daemon.ts';
import { envctlCommand, gatewayCommand } from '../programs/programs.ts';
import { until } from '../until.ts';

// Runs the blocks of a page, which it gets on standard input, one after the other in the working directory, against a
// daemon at its usual port, and the gateways that blocks start. Run in namespaces of its own. Prints the outcomes as JSON.
const LIMIT_MS = 60_000;
const { PATH = '' } = process.env;
const here = process.cwd();

const blocks = JSON.parse(await text(process.stdin)) as Block[];
const [definitions] = blocks.filter(({ language }) => language === 'sh');

// /proc cannot be frozen, the root file system of the tests' machine must not be.
const daemon = await startDaemon({ port: 49983, args: ['--fsfreeze-path=/proc', '--output-directory=/tmp'] });
let gateway: ChildProcess | null = null;

// As if it were installed.
mkdirSync(join(here, 'bin'));
const install = (name: string, lines: string) =>
  writeFileSync(join(here, 'bin', name), `#!/bin/sh\n${lines} "$@"\n`, { mode: 0o755 });
install('envctl', `exec '${envctlCommand().join("' '")}'`);
// `npm run gateway --` without the set-up, which is done.
install(
  'npm',
  `[ "$1 $2 $3" = 'run gateway --' ] || exit 2\nshift 3\nexec '${gatewayCommand().join("' '")}'`,
);

const outcomes: Outcome[] = [];
for (const block of blocks) outcomes.push(await run(block));
await endGateway();
await daemon.stop();
process.stdout.write(JSON.stringify(outcomes));
process.exit();

async function answers(url: string): Promise<boolean> {
  const response = await fetch(url).catch(() => null);
  return response?.status === 204;
}

/** Starts the gateway of a page in place of an earlier one, with the flags of the page, and files of its own. */
async function startGateway(code: string): Promise<Outcome> {
  await endGateway();
  const env = {
    PATH: `${join(here, 'bin')}:${PATH}`,
    ENVD_GATEWAY_REGISTRY: `${here}/registry.db`,
    ENVD_GATEWAY_HOOK_DIRECTORY: `${here}/hooks`,
  };
  gateway = spawn('bash', ['-c', `exec ${code}`], { env, stdio: 'ignore' });
  await until('the gateway answers', () => answers('http://localhost:49980/gateway/health'));
  return { exitCode: 0, stdout: '', stderr: '' };
}

async function endGateway(): Promise<void> {
  if (!gateway) return;
  const exited = once(gateway, 'exit');
  gateway.kill('SIGKILL');
  await exited;
}

async function run(block: Block): Promise<Outcome> {
  const { language, code } = block;
  if (startsGateway(block)) return startGateway(code);
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
