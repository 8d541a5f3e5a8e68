/**
 * Sandboxes in a real cluster of one node on this machine (docs/kubernetes.md), through the published client: what a creation costs with
 * and without a pool, and of what; requests to the API server; creations at the same time; memory with many sandboxes. As root.
 * Arguments: rounds, sandboxes that are registered while the memory is read.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { mkdtempSync } from 'node:fs';
import { get, type IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { CoreV1Api } from '@kubernetes/client-node';
import { Sandbox } from 'e2b';
import { readTemplate, sandboxPod } from '../../src/kubernetes/pods/template.ts';
import { API_KEY, startGateway, type TestGateway } from '../support/programs/gateway.ts';
import { HOOK_SECRET } from '../support/programs/kubernetes.ts';
import {
  accountAccess,
  adminAccess,
  applyExample,
  DAEMON_IMAGE,
  NAMESPACE,
  POD_ADDRESSES,
  podOf,
  putTemplate,
  writeAccess,
} from '../support/servers/cluster-objects.ts';
import { until } from '../support/until.ts';
import { median, percentile, printTable, residentMib, show } from './figures.ts';

const [rounds = 100, many = 1000] = process.argv.slice(2).map(Number);
const HOOKS_PORT = 49_981;
const WARM = 5;
const SMALL = '{requests: {cpu: 10m}}';

if (process.env.ENVD_CLUSTER_INSIDE === undefined) {
  outside();
  process.exit();
}
const admin = adminAccess();
const api = admin.makeApiClient(CoreV1Api);

/** Runs this program again, in the namespaces of a cluster. */
function outside(): void {
  const script = (name: string, ...args: readonly string[]) => {
    const file = join(import.meta.dirname, '../cluster', name);
    execFileSync('sh', [file, ...args], { stdio: 'inherit', cwd: join(import.meta.dirname, '../..') });
  };
  script('needs');
  script('build');
  script('run', process.execPath, import.meta.filename, String(rounds), String(many));
}

async function inside(): Promise<void> {
  await applyExample(admin);
  await putTemplate(admin, 'base', podOf(SMALL), WARM);
  await putTemplate(admin, 'cold', podOf(SMALL), 0);
  const program = startHooks(
    writeAccess(await accountAccess(admin), join(mkdtempSync('/run/bench-'), 'access')),
  );
  try {
    await using gateway = await startGateway({
      args: [
        ...['--header-prefix=E2b', `--hook-secret=${HOOK_SECRET}`, `--allow-addresses=${POD_ADDRESSES}`],
        ...['create', 'kill'].map((name) => `--${name}-hook=http://127.0.0.1:${HOOKS_PORT}/hooks`),
      ],
      anywhere: false,
    });
    await poolIsFull();
    await creations(gateway);
    await atOnce(gateway);
    await memory(gateway, program);
  } finally {
    program.kill();
  }
}

function startHooks(kubeconfig: string): ChildProcess {
  const args = [
    ...['--host=127.0.0.1', `--port=${HOOKS_PORT}`, '--log-level=warn'],
    ...[`--kubeconfig=${kubeconfig}`, `--daemon-image=${DAEMON_IMAGE}`],
  ];
  const main = join(import.meta.dirname, '../../src/kubernetes/main.ts');
  const env = { PATH: process.env.PATH, ENVD_KUBERNETES_HOOK_SECRET: HOOK_SECRET };
  return spawn(process.execPath, [main, ...args], { env, stdio: 'inherit' });
}

async function metric(name: string): Promise<number> {
  const page = await fetch(`http://127.0.0.1:${HOOKS_PORT}/metrics`).then(
    (answer) => answer.text(),
    () => '',
  );
  const lines = page.split('\n').filter((each) => each.startsWith(`envd_kubernetes_${name}`));
  return lines.length === 0 ? Number.NaN : lines.reduce((sum, line) => sum + Number(line.split(' ')[1]), 0);
}

const poolIsFull = () =>
  until('the pool is full', async () => (await metric('warm_pods{state="ready"}')) === WARM);

async function timed(work: () => Promise<unknown>): Promise<number> {
  const started = performance.now();
  await work();
  return performance.now() - started;
}

/** A request over a connection of its own, as the gateway sends one to a Pod. */
function ask(host: string): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const answered = (response: IncomingMessage) => void response.resume().once('end', resolve);
  get({ host, port: 49_983, path: '/health', agent: false }, answered).on('error', reject);
  return promise;
}

const PARTS = [
  'creation and first command',
  'creation',
  'its hook',
  'first command',
  'second command',
  'a list of Pods',
  'GET /health of the Pod',
] as const;

type Taken = Record<(typeof PARTS)[number], number[]>;

async function creations(gateway: TestGateway): Promise<void> {
  const taken = () => Object.fromEntries(PARTS.map((name) => [name, []])) as unknown as Taken;
  const [warm, cold] = [taken(), taken()];
  const requests = { base: 0, cold: 0 };
  // What is created to fill the pool is not counted.
  const count = async (template: 'base' | 'cold', verbs: readonly string[], times: Taken) => {
    await poolIsFull();
    const asked = async () =>
      (await Promise.all(verbs.map((verb) => metric(`api_requests_total{verb="${verb}"}`)))).reduce(
        (sum, each) => sum + each,
      );
    const before = await asked();
    await creation(gateway, template, times, async () => {
      requests[template] = Math.max(requests[template], (await asked()) - before);
    });
  };
  // The first round is to warm up.
  for (let round = 0; round <= rounds; round++) {
    await count('base', ['list', 'patch'], round === 0 ? taken() : warm);
    if (round % 3 === 0) await count('cold', ['list', 'patch', 'create'], round === 0 ? taken() : cold);
  }
  printTable(
    `A creation through the published client, in ms (${rounds} from a pool, ${cold.creation.length} without)`,
    PARTS.map((name) => ({
      part: name,
      'pool, p50': show(median(warm[name])),
      'pool, p99': show(percentile(warm[name], 0.99)),
      'no pool, p50': show(median(cold[name])),
      'no pool, p99': show(percentile(cold[name], 0.99)),
    })),
  );
  console.log(
    `\nRequests to the API server for a creation, at most: ${requests.base} from a pool, ${requests.cold} without.`,
  );
}

/** @param then is called when the creation has ended, before the sandbox is removed */
async function creation(
  gateway: TestGateway,
  template: string,
  taken: Taken,
  then: () => Promise<void>,
): Promise<void> {
  const options = { apiKey: API_KEY, apiUrl: gateway.url, sandboxUrl: gateway.url };
  const hooks = await metric('hook_seconds_total');
  const started = performance.now();
  const sandbox = await Sandbox.create(template, options);
  const created = performance.now();
  await sandbox.commands.run('true');
  const ended = performance.now();
  await then();
  const labelSelector = `envd/sandbox=${sandbox.sandboxId}`;
  const list = () => api.listNamespacedPod({ namespace: NAMESPACE, labelSelector });
  const [pod] = (await list()).items;
  taken.creation.push(created - started);
  taken['first command'].push(ended - created);
  taken['creation and first command'].push(ended - started);
  taken['its hook'].push(1000 * ((await metric('hook_seconds_total')) - hooks));
  taken['second command'].push(await timed(() => sandbox.commands.run('true')));
  taken['a list of Pods'].push(await timed(list));
  taken['GET /health of the Pod'].push(await timed(() => ask(pod?.status?.podIP ?? '')));
  await sandbox.kill();
}

async function atOnce(gateway: TestGateway): Promise<void> {
  const options = { apiKey: API_KEY, apiUrl: gateway.url, sandboxUrl: gateway.url };
  const row = async (template: string) => {
    await poolIsFull();
    let sandboxes: readonly Sandbox[] = [];
    const ms = await timed(async () => {
      sandboxes = await Promise.all(Array.from({ length: WARM }, () => Sandbox.create(template, options)));
    });
    await Promise.all(sandboxes.map((each) => each.kill()));
    return { template, 'creations a second': show((1000 * WARM) / ms) };
  };
  printTable(`${WARM} creations at once`, [await row('base'), await row('cold')]);
}

/** The Pods wait for a scheduler that there is not. */
async function memory(gateway: TestGateway, program: ChildProcess): Promise<void> {
  const maps = await api.listNamespacedConfigMap({
    namespace: NAMESPACE,
    labelSelector: 'envd/template=cold',
  });
  const [map] = maps.items;
  if (!map) throw new Error('the template is gone');
  const row = (sandboxes: string) => ({
    sandboxes,
    'gateway, MiB': show(residentMib(gateway.pid)),
    'envd-kubernetes, MiB': show(residentMib(program.pid ?? 0)),
  });
  const rows = [row('none')];
  const ids = Array.from({ length: many }, (_, index) => `many${index}`);
  for (const sandboxID of ids)
    await gateway.call('POST /sandboxes', { sandboxID, address: '10.98.255.1', timeout: 3600 });
  rows.push(row(`${many} registered`));
  const template = readTemplate(map, DAEMON_IMAGE);
  for (const id of ids) {
    const pod = sandboxPod(template, id, null, null);
    if (pod.spec) Object.assign(pod, { spec: { ...pod.spec, schedulerName: 'none' } });
    await api.createNamespacedPod({ namespace: NAMESPACE, body: pod });
  }
  await until('all are known', async () => (await metric('sandboxes')) >= many);
  printTable('Resident memory', [...rows, row(`${many}, each with a Pod`)]);
}

await inside();
