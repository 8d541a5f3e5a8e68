import { execFileSync, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, mkdirSync, openSync, readFileSync, rmSync } from 'node:fs';
import { type AddressInfo, connect, createServer, type Server } from 'node:net';
import { join } from 'node:path';

/* A cluster on this machine with the gateway and envd-kubernetes, for trying: `up` starts it, `down` ends it and leaves nothing. */

const USAGE = `usage: npm run platform -- --kubernetes up | down
up starts a Kubernetes cluster on this machine with the gateway, envd-kubernetes and the template 'base', and prints the variables for the
published clients. down ends it, with all sandboxes. Both as root. E2B_API_KEY may have the key of the platform.
`;
const HERE = import.meta.dirname;
const DIRECTORY = '/run/envd-kubernetes';
const CONTROL = join(DIRECTORY, 'control.sock');
const LOG = join(DIRECTORY, 'log');
const PORT = 49_980;
/** How much of the log is shown when it cannot start, in characters. */
const SHOWN = 3000;

/** What `inside.ts` gets with the socket. */
export interface Start {
  readonly key: string;
  readonly port: number;
}

async function up(): Promise<void> {
  if (await isUp())
    throw new Error('a cluster runs already: end it by `npm run platform -- --kubernetes down`');
  execFileSync('sh', [join(HERE, 'build')], { stdio: 'inherit' });
  rmSync(DIRECTORY, { recursive: true, force: true });
  mkdirSync(DIRECTORY, { mode: 0o700 });
  const output = openSync(LOG, 'a', 0o600);
  const serving = spawn(process.execPath, [import.meta.filename, 'serve'], {
    stdio: ['ignore', output, output, 'ipc'],
    detached: true,
  });
  say('the cluster starts, which takes a minute');
  const [told] = await Promise.race([once(serving, 'message'), once(serving, 'exit')]);
  if (typeof told !== 'object' || told === null) {
    const log = existsSync(LOG) ? readFileSync(LOG, 'utf8').slice(-SHOWN) : '';
    rmSync(DIRECTORY, { recursive: true, force: true });
    throw new Error(`the cluster did not start:\n${log}`);
  }
  serving.disconnect();
  serving.unref();
  const { key, port } = told as Start;
  const url = `http://127.0.0.1:${port}`;
  say(`the platform runs; its log is ${LOG}, and \`npm run platform -- --kubernetes down\` ends it\n`);
  process.stdout.write(`export E2B_API_KEY=${key} E2B_API_URL=${url} E2B_SANDBOX_URL=${url}\n`);
}

/** Ends what runs, and waits until nothing of it is left. */
async function down(): Promise<void> {
  if (!(await isUp())) {
    rmSync(DIRECTORY, { recursive: true, force: true });
    say('no cluster runs');
    return;
  }
  const control = connect(CONTROL)
    .on('error', () => {})
    .resume();
  control.write('end');
  await new Promise((resolve) => control.once('close', resolve));
  if (existsSync(DIRECTORY)) throw new Error(`the cluster ended, but '${DIRECTORY}' is still there`);
  say('the cluster has ended, and nothing of it is left');
}

function isUp(): Promise<boolean> {
  const control = connect(CONTROL);
  return new Promise<boolean>((resolve) => {
    control.once('connect', () => resolve(true)).once('error', () => resolve(false));
  }).finally(() => control.destroy());
}

/** Runs the cluster until somebody asks for its end. Only this process is outside of the namespaces. */
async function serve(): Promise<void> {
  const server = createServer((early) => early.destroy());
  await once(server.listen({ host: '127.0.0.1', port: PORT }), 'listening');
  const { port } = server.address() as AddressInfo;
  const key = process.env.E2B_API_KEY ?? `e2b_${randomBytes(20).toString('hex')}`;
  const cluster = spawn('sh', [join(HERE, 'run'), process.execPath, join(HERE, 'inside.ts')], {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
  const ended = once(cluster, 'exit');
  let isReady = false;
  const end = () => {
    if (cluster.connected) cluster.send('end', () => {});
  };
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, end);
  const control = createServer((asked) => {
    asked.on('error', () => {}).once('data', end);
  });
  await once(control.listen(CONTROL), 'listening');
  cluster.on('message', () => {
    isReady = true;
    if (process.connected) process.send?.({ key, port } satisfies Start);
  });
  // From here on the process inside alone takes connections.
  cluster.send({ key, port } satisfies Start, server as Server, () => server.close());
  await ended;
  // The log of one that could not start is shown first.
  if (isReady) rmSync(DIRECTORY, { recursive: true, force: true });
  process.exit(isReady ? 0 : 1);
}

function say(text: string): void {
  process.stderr.write(`cluster: ${text}\n`);
}

const COMMANDS: Readonly<Record<string, () => Promise<void>>> = { up, down, serve };

async function main(): Promise<void> {
  const command = COMMANDS[process.argv[2] ?? ''];
  if (command) await command();
  else process.stdout.write(USAGE);
}

await main().catch((error: unknown) => {
  const { status } = error as { readonly status?: unknown };
  // A program that has failed has said why.
  if (typeof status !== 'number') say(error instanceof Error ? error.message : String(error));
  process.exitCode = typeof status === 'number' ? status : 1;
});
