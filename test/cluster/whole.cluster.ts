import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { CoreV1Api, KubeConfig, type KubernetesObject, KubernetesObjectApi } from '@kubernetes/client-node';
import { Sandbox } from 'e2b';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { API_KEY, startGateway, type TestGateway } from '../support/programs/gateway.ts';
import { HOOK_SECRET, TestKubernetes } from '../support/programs/kubernetes.ts';
import { until } from '../support/until.ts';

/* The published client on a real cluster: its API server, scheduler and kubelet, and Pods in containers. */

const MANIFEST = fileURLToPath(new URL('../../examples/kubernetes/platform.yaml', import.meta.url));
/** What the account of envd-kubernetes needs; the other objects have images that this cluster cannot pull. */
const APPLIED = ['Namespace', 'ServiceAccount', 'Role', 'RoleBinding'];
const namespace = 'sandboxes';

const admin = new KubeConfig();
admin.loadFromFile(process.env.KUBECONFIG ?? '');
const api = admin.makeApiClient(CoreV1Api);
const directory = mkdtempSync(join(tmpdir(), 'envd-cluster-'));
let program: TestKubernetes;
let gateway: TestGateway;

const podOf = (cpu: string) => `
apiVersion: v1
kind: Pod
spec:
  containers:
    - name: sandbox
      image: registry.example/system:1
      args: [--no-cgroups]
      resources: {requests: {cpu: ${cpu}}}
`;

beforeAll(async () => {
  const objects = KubernetesObjectApi.makeApiClient(admin);
  for (const object of parseAllDocuments(readFileSync(MANIFEST, 'utf8')).map((each) => each.toJS())) {
    const { kind } = object as KubernetesObject;
    if (APPLIED.includes(kind ?? '')) await objects.create(object);
  }
  await until('the namespace has its account', () =>
    api.readNamespacedServiceAccount({ name: 'default', namespace }).catch(() => null),
  );
  const { status } = await api.createNamespacedServiceAccountToken({
    name: 'envd-kubernetes',
    namespace: 'envd',
    body: { spec: { audiences: [] } },
  });
  // The program has the rights of the manifest, and no others.
  const own = new KubeConfig();
  const cluster = admin.getCurrentCluster();
  if (!cluster) throw new Error('KUBECONFIG names no cluster');
  own.loadFromClusterAndUser(cluster, { name: 'envd-kubernetes', token: status?.token ?? '' });
  const kubeconfig = join(directory, 'kubeconfig');
  writeFileSync(kubeconfig, own.exportConfig());
  await template('base', podOf('10m'), 0);
  program = await new TestKubernetes('', [
    ...[`--kubeconfig=${kubeconfig}`, '--daemon-image=registry.example/daemon:1', '--pod-timeout=20'],
  ]).start();
  const hook = (name: string) => `--${name}-hook=${program.url}/hooks`;
  gateway = await startGateway({
    args: [
      ...['--header-prefix=E2b', `--hook-secret=${HOOK_SECRET}`, '--allow-addresses=10.98.0.0/16'],
      ...[hook('create'), hook('kill'), hook('list')],
    ],
    anywhere: false,
  });
});

afterAll(async () => {
  await gateway[Symbol.asyncDispose]();
  await program[Symbol.asyncDispose]();
  rmSync(directory, { recursive: true, force: true });
});

async function template(name: string, pod: string, warm: number): Promise<void> {
  const data = { 'pod.yaml': pod, warm: String(warm), 'init.json': '{"defaultUser":"user"}' };
  const body = { metadata: { name, labels: { 'envd/template': name } }, data };
  const change = { name, namespace, body };
  await api
    .replaceNamespacedConfigMap(change)
    .catch(() => api.createNamespacedConfigMap({ namespace, body }));
}

const options = () => ({ apiKey: API_KEY, apiUrl: gateway.url, sandboxUrl: gateway.url });
const podsOf = async (id: string) =>
  (await api.listNamespacedPod({ namespace, labelSelector: `envd/sandbox=${id}` })).items;

test('a sandbox without a pool: a Pod of any image, a command, files, and nothing is left', async () => {
  const started = performance.now();
  const sandbox = await Sandbox.create('base', { ...options(), envs: { WHO: 'ada' } });
  const { stdout } = await sandbox.commands.run('echo $WHO; id -u; touch /x 2>&1 || true');
  process.stdout.write(
    `create and first command without a pool: ${Math.round(performance.now() - started)} ms\n`,
  );
  expect(stdout.split('\n').slice(0, 2)).toEqual(['ada', '1000']);
  expect(stdout).toContain('Read-only file system');
  await sandbox.files.write('/tmp/poem', 'roses');
  expect(await sandbox.files.read('/tmp/poem')).toBe('roses');
  const [pod] = await podsOf(sandbox.sandboxId);
  expect(pod?.spec?.nodeName).toBe('envd-node');
  expect(pod?.spec?.volumes?.filter(({ projected }) => projected)).toEqual([]);
  expect(await sandbox.kill()).toBe(true);
  expect(await podsOf(sandbox.sandboxId)).toEqual([]);
});

test('sandboxes of a pool are warm Pods, and the pool is filled again', async () => {
  await template('base', podOf('10m'), 3);
  const times: number[] = [];
  for (let run = 0; run < 6; run++) {
    await until('the pool is full', async () => (await program.metric('warm_pods{state="ready"}')) === 3);
    const started = performance.now();
    const sandbox = await Sandbox.create('base', options());
    await sandbox.commands.run('true');
    times.push(Math.round(performance.now() - started));
    expect((await podsOf(sandbox.sandboxId))[0]?.metadata?.name).toMatch(/^warm-base-/);
    expect(await sandbox.kill()).toBe(true);
  }
  process.stdout.write(`create and first command from a pool: ${times.join(', ')} ms\n`);
});

test('a Pod that is deleted is a record without a machine', async () => {
  const sandbox = await Sandbox.create('base', options());
  const [pod] = await podsOf(sandbox.sandboxId);
  await api.deleteNamespacedPod({ namespace, name: pod?.metadata?.name ?? '', gracePeriodSeconds: 0 });
  const listed = async () => (await program.hook({ event: 'list' })).text;
  await until('it is not listed', async () => !(await listed()).includes(sandbox.sandboxId));
  expect(await sandbox.kill()).toBe(true);
});

test('a sandbox that no node has room for fails with the words of the scheduler', async () => {
  await template('large', podOf('1000'), 0);
  await expect(Sandbox.create('large', options())).rejects.toThrow(
    /0\/1 nodes are available: 1 Insufficient cpu/,
  );
  const { items } = await api.listNamespacedPod({ namespace, labelSelector: 'envd/template=large' });
  expect(items.filter(({ metadata }) => !metadata?.deletionTimestamp)).toEqual([]);
});
