import { execFile, execFileSync, spawn } from 'node:child_process';
import { chownSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { CoreV1Api, NetworkingV1Api } from '@kubernetes/client-node';
import { Sandbox } from 'e2b';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { needs } from '../support/machine/needs.ts';
import { API_KEY, startGateway, type TestGateway } from '../support/programs/gateway.ts';
import { HOOK_SECRET, TestKubernetes } from '../support/programs/kubernetes.ts';
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

/* The published clients on a real cluster: its API server, scheduler and kubelet, and Pods in containers. */

const namespace = NAMESPACE;
const SMALL = podOf('{requests: {cpu: 10m}}');
const DISK = `${SMALL.replace('args:', 'volumeMounts: [{name: home, mountPath: /home/user}]\n      args:')}  volumes:
    - name: home
      ephemeral:
        volumeClaimTemplate:
          spec: {storageClassName: tests, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`;
const PYTHON = `
from e2b import Sandbox
sandbox = Sandbox.create(envs={'WHO': 'ada'})
print(sandbox.sandbox_id, sandbox.commands.run('echo $WHO').stdout.strip())
sandbox.files.write('/tmp/poem', 'roses')
print(sandbox.files.read('/tmp/poem'), sandbox.kill())
`;

const admin = adminAccess();
const api = admin.makeApiClient(CoreV1Api);
const networking = admin.makeApiClient(NetworkingV1Api);
const directory = mkdtempSync(join(tmpdir(), 'envd-cluster-'));
let program: TestKubernetes;
let gateway: TestGateway;

beforeAll(async () => {
  await applyExample(admin);
  const kubeconfig = writeAccess(await accountAccess(admin), join(directory, 'kubeconfig'));
  await putTemplate(admin, 'base', SMALL, 0);
  program = await new TestKubernetes('', [
    ...[`--kubeconfig=${kubeconfig}`, `--daemon-image=${DAEMON_IMAGE}`, '--pod-timeout=50'],
    ...['--network-policies', '--pause=disk'],
  ]).start();
  const hook = (name: string) => `--${name}-hook=${program.url}/hooks`;
  gateway = await startGateway({
    args: [
      ...['--header-prefix=E2b', `--hook-secret=${HOOK_SECRET}`, `--allow-addresses=${POD_ADDRESSES}`],
      ...[hook('create'), hook('kill'), hook('list'), hook('resume')],
      ...[`--hook=${program.url}/hooks`, '--pause-keeps=disk'],
      '--create-options=allow_internet_access,network.allowOut,network.denyOut',
    ],
    anywhere: false,
  });
});

afterAll(async () => {
  await gateway[Symbol.asyncDispose]();
  await program[Symbol.asyncDispose]();
  rmSync(directory, { recursive: true, force: true });
});

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
  await putTemplate(admin, 'base', SMALL, 3);
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

test('a Pod that is evicted has its reason in the log, and nothing of it is left', async () => {
  const sandbox = await Sandbox.create('base', options());
  const [{ metadata } = {}] = await podsOf(sandbox.sandboxId);
  const name = metadata?.name ?? '';
  await api.createNamespacedPodEviction({ name, namespace, body: { metadata: { name, namespace } } });
  const told = () =>
    program.log.find(({ msg, pod }) => msg === 'the Pod of a sandbox has ended' && pod === name);
  expect(await until('it is told', told)).toMatchObject({
    sandboxID: sandbox.sandboxId,
    reason: expect.stringContaining('EvictionByEvictionAPI'),
  });
  expect(await sandbox.kill()).toBe(true);
  expect(await podsOf(sandbox.sandboxId)).toEqual([]);
});

test('what a client asks for its network is a policy of its Pod, which the cluster removes with it', async () => {
  const network = { denyOut: ['8.8.8.8', '1.1.1.0/24'] };
  const sandboxes = await Promise.all([
    Sandbox.create('base', { ...options(), allowInternetAccess: false }),
    Sandbox.create('base', { ...options(), network }),
  ]);
  const policyOf = async (id: string) =>
    (await networking.listNamespacedNetworkPolicy({ namespace, labelSelector: `envd/sandbox=${id}` })).items;
  const [closed, limited] = await Promise.all(sandboxes.map(({ sandboxId }) => policyOf(sandboxId)));
  expect(closed?.map(({ spec }) => spec?.egress ?? [])).toEqual([[]]);
  const blocks = limited?.[0]?.spec?.egress?.flatMap(({ to }) => to?.[0]?.ipBlock?.except ?? []);
  expect(blocks).toEqual(expect.arrayContaining(['10.0.0.0/8', '8.8.8.8/32', '1.1.1.0/24']));
  for (const sandbox of sandboxes) {
    const [pod] = await podsOf(sandbox.sandboxId);
    expect(pod?.metadata?.labels).toMatchObject({ 'envd/egress': 'own' });
    expect((await sandbox.commands.run('echo it runs')).stdout).toBe('it runs\n');
    expect(await sandbox.kill()).toBe(true);
    await until('the policy is gone', async () => (await policyOf(sandbox.sandboxId)).length === 0);
  }
});

test('six creations at once have a Pod each, of a pool of three and beyond it', async () => {
  await until('the pool is full', async () => (await program.metric('warm_pods{state="ready"}')) === 3);
  const sandboxes = await Promise.all(
    Array.from({ length: 6 }, (_, index) =>
      Sandbox.create('base', { ...options(), envs: { N: String(index) } }),
    ),
  );
  const names = await Promise.all(
    sandboxes.map(async (each) => (await podsOf(each.sandboxId))[0]?.metadata?.name),
  );
  expect(new Set(names).size).toBe(6);
  const said = await Promise.all(sandboxes.map((each) => each.commands.run('echo $N')));
  expect(said.map(({ stdout }) => stdout)).toEqual(sandboxes.map((_, index) => `${index}\n`));
  await Promise.all(sandboxes.map((each) => each.kill()));
  for (const { sandboxId } of sandboxes) expect(await podsOf(sandboxId)).toEqual([]);
});

test('a sandbox that is paused without its memory has no Pod, and has its files when it is resumed', async () => {
  const volume = { storageClassName: 'tests', capacity: { storage: '1Gi' }, accessModes: ['ReadWriteOnce'] };
  for (const name of ['one', 'two', 'three', 'four']) {
    const path = join(directory, name);
    mkdirSync(path);
    chownSync(path, 1000, 1000);
    await api.createPersistentVolume({
      body: { metadata: { name }, spec: { ...volume, hostPath: { path } } },
    });
  }
  await putTemplate(admin, 'disk', DISK, 1);
  const sandbox = await Sandbox.create('disk', { ...options(), metadata: { for: 'a pause' } });
  const claimsOf = async () =>
    (
      await api.listNamespacedPersistentVolumeClaim({
        namespace,
        labelSelector: `envd/sandbox=${sandbox.sandboxId}`,
      })
    ).items;
  await sandbox.files.write('/home/user/poem', 'roses');
  await sandbox.commands.run('sleep 1000', { background: true });
  expect(await sandbox.pause({ keepMemory: false })).toBe(true);
  expect(await podsOf(sandbox.sandboxId)).toEqual([]);
  expect((await claimsOf()).map(({ status }) => status?.phase)).toEqual(['Bound']);
  expect((await program.hook({ event: 'list' })).text).toContain(sandbox.sandboxId);
  const again = await Sandbox.connect(sandbox.sandboxId, options());
  expect(await again.files.read('/home/user/poem')).toBe('roses');
  expect(await again.commands.list()).toEqual([]);
  expect(await again.kill()).toBe(true);
  await until('the disk is gone', async () => (await claimsOf()).length === 0);
});

/** The commands of docs/kubernetes.md that drain a node, with what is here in place of the names in capitals. */
function drainCommands(): string {
  const text = readFileSync(join(import.meta.dirname, '../../docs/kubernetes.md'), 'utf8');
  const [, commands = ''] = /Before you drain a node.*?```\n(.*?)```/s.exec(text) ?? [];
  return commands.replaceAll('NODE', 'envd-node').replaceAll("'X-API-Key: KEY'", `'X-API-Key: ${API_KEY}'`);
}

test('a node is drained as the docs say: nothing runs there, what is paused keeps its disk, and the node comes back', async () => {
  const [kept, lost] = [await Sandbox.create('disk', options()), await Sandbox.create('base', options())];
  await kept.files.write('/home/user/poem', 'roses');
  expect(await kept.pause({ keepMemory: false })).toBe(true);
  const run = promisify(execFile);
  const shell = (script: string) =>
    run('sh', ['-ec', script], { env: { ...process.env, GATEWAY: gateway.url }, timeout: 120_000 });
  const { stdout } = await shell(drainCommands());
  expect(stdout).toContain('node/envd-node drained');
  expect(await podsOf(lost.sandboxId)).toEqual([]);
  await shell('kubectl uncordon envd-node');
  expect((await gateway.call('PATCH /hosts/envd-node', { drain: false })).status).toBe(200);
  const again = await Sandbox.connect(kept.sandboxId, options());
  expect(await again.files.read('/home/user/poem')).toBe('roses');
  expect(await again.kill()).toBe(true);
});

test('the published Python client: create, a command, a file, kill', async () => {
  needs('the published Python client');
  const env = { E2B_API_KEY: API_KEY, E2B_API_URL: gateway.url, E2B_SANDBOX_URL: gateway.url };
  const { PATH, HOME } = process.env;
  const { stdout } = await promisify(execFile)('python3', ['-c', PYTHON], { env: { PATH, HOME, ...env } });
  expect(stdout).toMatch(/^\w+ ada\nroses True\n$/);
  expect(await podsOf(stdout.split(' ')[0] ?? '')).toEqual([]);
});

test('a sandbox that no node has room for fails with the words of the scheduler', async () => {
  await putTemplate(admin, 'large', podOf('{requests: {cpu: 1000}}'), 0);
  // The client would ask again.
  const { status, text } = await gateway.call('POST /sandboxes', { templateID: 'large' });
  expect([status, text]).toEqual([
    429,
    expect.stringContaining('0/1 nodes are available: 1 Insufficient cpu'),
  ]);
  const { items } = await api.listNamespacedPod({ namespace, labelSelector: 'envd/template=large' });
  expect(items.filter(({ metadata }) => !metadata?.deletionTimestamp)).toEqual([]);
});

test('while the API server is killed, sandboxes go on; when it is back, they are created and killed again', async () => {
  const sandbox = await Sandbox.create('base', options());
  // Only processes of the cluster are seen here.
  const pid = Number(execFileSync('pgrep', ['-x', 'kube-apiserver'], { encoding: 'utf8' }));
  const command = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').filter(Boolean);
  process.kill(pid, 'SIGKILL');
  const health = async () => (await fetch(`${program.url}/health`)).status;
  await until('the program is not well', async () => (await health()) === 503);
  expect((await sandbox.commands.run('echo it goes on')).stdout).toBe('it goes on\n');
  await expect(Sandbox.create('base', options())).rejects.toThrow('could not be created');
  spawn(command[0] ?? '', command.slice(1), { stdio: 'ignore', detached: true }).unref();
  await until('the program is well', async () => (await health()) === 200);
  const other = await Sandbox.create('base', options());
  for (const each of [sandbox, other]) {
    expect((await each.commands.run('echo it runs')).stdout).toBe('it runs\n');
    expect(await each.kill()).toBe(true);
    expect(await podsOf(each.sandboxId)).toEqual([]);
  }
});
