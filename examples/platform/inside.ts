import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { openSync, readFileSync } from 'node:fs';
import { connect, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { pipeline } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { backendOf } from './backends.ts';
import { SandboxCgroup } from './cgroup.ts';
import { NETWORK } from './network.ts';
import type { Start } from './platform.ts';
import { type Settings, writeSettings } from './settings.ts';
import { messageOf } from './tools.ts';

/*
 * The part of the platform that is in its namespaces. It starts the gateway, and carries connections to it from the socket that main.ts
 * listens on outside.
 */

const GATEWAY_PORT = 49_980;
const POLL_MS = 20;
const HOOK_TIMEOUT_S = 300;
/** How much of the gateway's log is shown when it cannot start, in characters. */
const SHOWN = 2000;

async function serve({ settings, ...start }: Start): Promise<void> {
  SandboxCgroup.makeParent(settings.cgroup);
  writeSettings(settings);
  await backendOf(settings).prepare((text) => tell({ say: text }));
  const [program = '', ...before] = start.gateway;
  const log = join(settings.directory, 'gateway.log');
  const output = openSync(log, 'a', 0o600);
  const gateway = spawn(program, [...before, ...gatewayFlags(settings, start)], {
    stdio: ['ignore', output, output],
    env: { ...process.env, NODE_CHANNEL_FD: undefined, ENVD_GATEWAY_API_KEY: start.key },
  });
  const ended = once(gateway, 'exit');
  stopping.signal.addEventListener('abort', () => gateway.kill('SIGTERM'));
  if (stopping.signal.aborted) gateway.kill('SIGTERM');
  const isReady = await Promise.race([ended.then(() => false), untilReady()]);
  if (isReady) {
    serving.resolve();
    tell({ isLimited: SandboxCgroup.isLimited(settings.cgroup) });
    await ended;
  } else process.stderr.write(readFileSync(log, 'utf8').slice(-SHOWN));
  // Everything in the namespaces ends with this process, because its parent is the first one there.
  process.exit(isReady ? 0 : 1);
}

function gatewayFlags({ directory }: Settings, { domain, flags }: Pick<Start, 'domain' | 'flags'>) {
  const hook = `exec '${process.execPath}' '${join(import.meta.dirname, 'hook.ts')}' '${directory}'`;
  return [
    '--host=127.0.0.1',
    `--port=${GATEWAY_PORT}`,
    '--header-prefix=E2b',
    `--domain=${domain}`,
    '--drain=0',
    `--allow-addresses=${NETWORK}`,
    `--registry=${directory}/registry.db`,
    `--hook-directory=${directory}/hooks`,
    `--hook-timeout=${HOOK_TIMEOUT_S}`,
    ...['hook', 'create-hook', 'resume-hook', 'kill-hook'].map((name) => `--${name}=${hook}`),
    ...flags,
  ];
}

function tell(message: object): void {
  if (process.connected) process.send?.(message);
}

async function untilReady(): Promise<true> {
  const health = `http://127.0.0.1:${GATEWAY_PORT}/gateway/health`;
  const isReady = () =>
    fetch(health).then(
      ({ ok }) => ok,
      () => false,
    );
  while (!(await isReady())) await delay(POLL_MS);
  return true;
}

/** Connections wait until the gateway serves; they end with this process if it never does. */
async function relay(client: Socket): Promise<void> {
  // Nobody else listens for errors of a client that waits.
  client.on('error', () => {});
  await serving.promise;
  const gateway = connect({ host: '127.0.0.1', port: GATEWAY_PORT, allowHalfOpen: true });
  // Either side may close or fail at any time, which ends both.
  pipeline(client, gateway, client, () => {});
}

const stopping = new AbortController();
const serving = Promise.withResolvers<void>();
process.once('disconnect', () => stopping.abort());
process.once('message', (start, server) => {
  process.on('message', (message) => message === 'stop' && stopping.abort());
  (server as Server).on('connection', (client) => void relay(client));
  serve(start as Start).catch((error: unknown) => {
    process.stderr.write(`platform: ${messageOf(error)}\n`);
    process.exit(1);
  });
});
