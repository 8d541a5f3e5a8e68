import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync } from 'node:fs';
import { connect, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { pipeline } from 'node:stream';
import {
  accountAccess,
  adminAccess,
  applyExample,
  DAEMON_IMAGE,
  POD_ADDRESSES,
  podOf,
  putTemplate,
  writeAccess,
} from '../support/servers/cluster-objects.ts';
import { until } from '../support/until.ts';
import type { Start } from './platform.ts';

/* The part of `platform.ts` that is in the namespaces of the cluster: the gateway and envd-kubernetes, as processes. */

const ROOT = join(import.meta.dirname, '../..');
const GATEWAY_PORT = 49_980;
const HOOKS_PORT = 49_981;
/** Pods that are ready in the pool of the template. */
const WARM = 2;

async function serve({ key }: Start): Promise<void> {
  const admin = adminAccess();
  await applyExample(admin);
  await putTemplate(
    admin,
    'base',
    podOf('{requests: {cpu: 10m, memory: 64Mi}, limits: {memory: 1Gi}}'),
    WARM,
  );
  const directory = mkdtempSync('/run/platform-');
  const access = writeAccess(await accountAccess(admin), join(directory, 'kubeconfig'));
  const secret = `whsec_${randomBytes(32).toString('base64')}`;
  const hooks = `http://127.0.0.1:${HOOKS_PORT}/hooks`;
  const programs = [
    run('kubernetes', { ENVD_KUBERNETES_HOOK_SECRET: secret }, [
      ...['--host=127.0.0.1', `--port=${HOOKS_PORT}`],
      ...[`--kubeconfig=${access}`, `--daemon-image=${DAEMON_IMAGE}`],
    ]),
    run('gateway', { ENVD_GATEWAY_HOOK_SECRET: secret, ENVD_GATEWAY_API_KEY: key }, [
      ...['--host=127.0.0.1', `--port=${GATEWAY_PORT}`, '--header-prefix=E2b', '--drain=0'],
      ...['--domain=sandboxes.localhost', `--allow-addresses=${POD_ADDRESSES}`],
      ...[`--registry=${directory}/registry.db`, `--hook-directory=${directory}/hooks`],
      ...['create', 'kill', 'list'].map((name) => `--${name}-hook=${hooks}`),
      ...['--reconcile=remove', '--on-expiry=remove'],
    ]),
  ];
  // One that ends takes the others with it, because this process then ends, and the cluster with it.
  for (const each of programs) each.once('exit', (code) => process.exit(code ?? 1));
  await until('the platform serves', isReady);
  serving.resolve();
  process.send?.('ready');
}

function run(program: string, settings: NodeJS.ProcessEnv, args: readonly string[]): ChildProcess {
  const env = { PATH: process.env.PATH, ...settings };
  return spawn(process.execPath, [join(ROOT, `src/${program}/main.ts`), ...args], { stdio: 'inherit', env });
}

async function isReady(): Promise<boolean> {
  const metrics = await textOf(`http://127.0.0.1:${HOOKS_PORT}/metrics`);
  const isFull = metrics?.includes(`envd_kubernetes_warm_pods{state="ready"} ${WARM}\n`) === true;
  return isFull && (await textOf(`http://127.0.0.1:${GATEWAY_PORT}/gateway/health`)) !== null;
}

/** Returns what a server answers, or null if it does not, or is not well. */
function textOf(url: string): Promise<string | null> {
  return fetch(url).then(
    (answer) => (answer.ok ? answer.text() : null),
    () => null,
  );
}

/** Connections wait until the gateway serves. */
async function relay(client: Socket): Promise<void> {
  client.on('error', () => {});
  await serving.promise;
  const gateway = connect({ host: '127.0.0.1', port: GATEWAY_PORT, allowHalfOpen: true });
  // Either side may close or fail at any time, which ends both.
  pipeline(client, gateway, client, () => {});
}

const serving = Promise.withResolvers<void>();
// The process outside has ended, or asks for the end of all.
process.once('disconnect', () => process.exit());
const [start, server] = (await once(process, 'message')) as [Start, Server];
process.once('message', () => process.exit());
server.on('connection', (client) => void relay(client));
await serve(start);
