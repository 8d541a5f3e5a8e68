import { afterEach, beforeEach, expect, test } from 'vitest';
import { signed, TestKubernetes } from '../support/programs/kubernetes.ts';
import { FakeKubernetes, READY } from '../support/servers/fake-kubernetes.ts';
import { until } from '../support/until.ts';

const POD = `
apiVersion: v1
kind: Pod
metadata:
  labels: {team: tests}
spec:
  containers:
    - name: sandbox
      image: debian
      args: [--no-cgroups]
      resources: {limits: {cpu: 1500m, memory: 256Mi}}
`;

let cluster: FakeKubernetes;
let started: TestKubernetes[];

beforeEach(async () => {
  started = [];
  cluster = await new FakeKubernetes().start();
  cluster.template('base', { 'pod.yaml': POD, 'init.json': '{"defaultUser":"root"}' });
});

afterEach(async () => {
  for (const each of [...started, cluster]) await each[Symbol.asyncDispose]();
});

async function start(...args: readonly string[]): Promise<TestKubernetes> {
  const program = await new TestKubernetes(cluster.url, args).start();
  started.push(program);
  return program;
}

const isWarm = (count: number) => () =>
  cluster.labelled('envd/state', 'warm').filter(({ status }) => status && 'conditions' in status).length ===
  count;

test('a creation makes a Pod, waits until it is ready, and answers with its address', async () => {
  const program = await start();
  cluster.onPod = () => null;
  const answer = program.create('abc', { owner: 'ada lovelace' });
  await until('the Pod is there', () => cluster.pods.length === 1);
  cluster.status('sandbox-abc', { ...READY, podIP: '10.1.2.4' });
  expect(await answer).toEqual({
    status: 200,
    body: { address: '10.1.2.4', port: 49983, cpuCount: 2, memoryMB: 256, init: { defaultUser: 'root' } },
  });
  const [pod] = cluster.pods;
  expect(pod?.metadata.labels).toMatchObject({
    team: 'tests',
    'envd/template': 'base',
    'envd/sandbox': 'abc',
    'envd/state': 'used',
  });
  expect(pod?.metadata.annotations).toEqual({ 'envd/owner': 'ada lovelace' });
});

test('a Pod has strict rights, the daemon, and no account of the cluster', async () => {
  const program = await start();
  await program.create('abc');
  const spec = cluster.pods[0]?.spec;
  const strict = {
    allowPrivilegeEscalation: false,
    readOnlyRootFilesystem: true,
    capabilities: { drop: ['ALL'] },
  };
  expect(spec).toMatchObject({
    restartPolicy: 'Never',
    automountServiceAccountToken: false,
    enableServiceLinks: false,
    securityContext: { runAsNonRoot: true, runAsUser: 1000, seccompProfile: { type: 'RuntimeDefault' } },
  });
  expect(spec.initContainers).toMatchObject([
    { image: 'registry.example/envd', args: ['/tools'], securityContext: strict },
  ]);
  expect(spec.containers).toMatchObject([
    {
      command: ['/tools/envd/bin/envd-supervise', '--require-token'],
      args: ['--no-cgroups'],
      securityContext: strict,
      readinessProbe: { httpGet: { path: '/health', port: 49983 } },
    },
  ]);
  const writable = spec.containers[0].volumeMounts.filter(
    (each: { readonly readOnly?: boolean }) => !each.readOnly,
  );
  expect(writable.map(({ mountPath }: { readonly mountPath: string }) => mountPath)).toEqual([
    '/run',
    '/tmp',
  ]);
});

test('what a template says goes before what is strict', async () => {
  const more = POD.replace(
    '    - name: sandbox',
    '    - name: sandbox\n      securityContext: {readOnlyRootFilesystem: false}',
  ).replace(
    'spec:',
    'spec:\n  automountServiceAccountToken: true\n  securityContext: {runAsNonRoot: false, runAsUser: 0}',
  );
  cluster.template('base', { 'pod.yaml': more });
  const program = await start();
  await program.create('abc');
  const { automountServiceAccountToken, securityContext, containers, volumes } = cluster.pods[0]?.spec ?? {};
  expect(automountServiceAccountToken).toBe(true);
  expect(securityContext).toMatchObject({ runAsNonRoot: false, runAsUser: 0, fsGroup: 1000 });
  expect(containers[0].securityContext).toMatchObject({
    readOnlyRootFilesystem: false,
    capabilities: { drop: ['ALL'] },
  });
  expect(volumes).toHaveLength(1);
});

test('only signed requests are answered', async () => {
  const program = await start();
  const body = JSON.stringify({ event: 'create', sandboxID: 'abc', templateID: 'base' });
  const post = async (headers: Readonly<Record<string, string>>, sent = body) =>
    (await fetch(`${program.url}/hooks`, { method: 'POST', body: sent, headers })).status;
  expect(await post({})).toBe(401);
  expect(await post(signed(body, Buffer.alloc(32, 8)))).toBe(401);
  expect(await post(signed(body), body.replace('abc', 'abd'))).toBe(401);
  expect(await post(signed(body, undefined, Math.floor(Date.now() / 1000) - 301))).toBe(401);
  expect(await post({}, 'x'.repeat(300_000))).toBe(413);
  expect(cluster.pods).toEqual([]);
  expect(await post(signed(body))).toBe(200);
});

test('a creation that is asked for twice has one Pod, also when two programs are asked', async () => {
  const [one, other] = [await start(), await start()];
  const answers = await Promise.all([one.create('abc'), one.create('abc'), other.create('abc')]);
  expect(answers.map(({ status }) => status)).toEqual([200, 200, 200]);
  expect(await other.create('abc')).toEqual(answers[0]);
  expect(cluster.pods).toHaveLength(1);
});

test('a removal ends the Pod of the sandbox alone, and is repeated without harm', async () => {
  const program = await start();
  await Promise.all([program.create('abc'), program.create('abd')]);
  expect((await program.hook({ event: 'list' })).text.split('\n').sort()).toEqual(['', 'abc', 'abd']);
  expect((await program.hook({ event: 'kill', sandboxID: 'abc', outcome: 'remove' })).status).toBe(200);
  expect(cluster.pods.map(({ metadata }) => metadata.name)).toEqual(['sandbox-abd']);
  expect((await program.hook({ event: 'kill', sandboxID: 'abc', outcome: 'remove' })).status).toBe(200);
  expect((await program.hook({ event: 'expire', sandboxID: 'abd', outcome: 'remove' })).status).toBe(200);
  await until('no sandbox is listed', async () => (await program.hook({ event: 'list' })).text === '');
});

test('a Pod that was deleted or has failed is not listed', async () => {
  const program = await start();
  await Promise.all(['abc', 'abd', 'abe'].map((id) => program.create(id)));
  cluster.remove('sandbox-abc');
  cluster.status('sandbox-abd', { phase: 'Failed', reason: 'Evicted' });
  const listed = async () => (await program.hook({ event: 'list' })).text;
  expect(await until('one is left', listed, (text) => text.length === 4)).toBe('abe\n');
});

test('a creation fails with the words of the scheduler, and leaves no Pod', async () => {
  const program = await start('--pod-timeout=1');
  const message = '0/3 nodes are available: 3 Insufficient memory.';
  cluster.onPod = () => ({
    phase: 'Pending',
    conditions: [{ type: 'PodScheduled', status: 'False', reason: 'Unschedulable', message }],
  });
  expect((await program.create('abc')).body).toEqual({
    error: `no node has room for the sandbox: ${message}`,
    code: 429,
  });
  expect(cluster.pods).toEqual([]);
});

test('a Pod that cannot run fails its creation at once, with the reason', async () => {
  const program = await start();
  cluster.onPod = () => ({
    phase: 'Failed',
    initContainerStatuses: [{ name: 'envd', state: { terminated: { exitCode: 1, reason: 'Error' } } }],
  });
  const { status, body } = await program.create('abc');
  expect([status, body.message]).toEqual([503, "Pod 'sandbox-abc' cannot run: container 'envd': Error"]);
  expect(cluster.pods).toEqual([]);
});

test('refusals name their reason', async () => {
  const program = await start();
  const error = async (more: object) => (await program.create('abc', { ...more })).body;
  expect(await error({ templateID: 'other' })).toEqual({ error: "template 'other' is not known", code: 404 });
  expect(await error({ owner: 'ada', quota: { cpu: null, memory: 128 } })).toEqual({
    error: "template 'base' has 256 MiB of memory, and 'ada' may have 128",
    code: 403,
  });
  expect((await error({ sandboxID: 'With_Capitals' })).code).toBe(400);
  cluster.refuse = (request) =>
    request === 'POST pods'
      ? [403, 'pods "x" is forbidden: exceeded quota: sandboxes, requested: pods=1']
      : null;
  expect(await error({})).toMatchObject({
    code: 429,
    error: expect.stringContaining('exceeded quota: sandboxes'),
  });
  expect(cluster.pods).toEqual([]);
});

test.each([
  [
    'a member that is not known',
    POD.replace('limits', 'limit'),
    "there is no 'spec.containers.0.resources.limit'",
  ],
  ['a command', POD.replace('args:', 'command:'), 'the command is the daemon'],
  ['no YAML', '{', 'pod.yaml is not YAML'],
  ['another kind', 'kind: Deployment', "'kind: Pod'"],
])('a template with %s is refused', async (_what, pod, message) => {
  cluster.template('base', { 'pod.yaml': pod });
  const program = await start();
  const { status, body } = await program.create('abc');
  expect([status, body.message]).toEqual([412, expect.stringContaining(message)]);
});

test('a sandbox keeps off nodes that are drained', async () => {
  const program = await start();
  await program.create('abc', { drainedHosts: ['node-1'] });
  const { nodeAffinity } = cluster.pods[0]?.spec.affinity ?? {};
  expect(nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms).toEqual([
    { matchFields: [{ key: 'metadata.name', operator: 'NotIn', values: ['node-1'] }] },
  ]);
});

test('a pause is 501 with a sentence, except where the daemon has frozen everything', async () => {
  const [without, frozen] = [await start(), await start('--pause=freeze')];
  const pause = { event: 'expire', outcome: 'pause', sandboxID: 'abc' };
  const freeze = { requested: 2, frozen: 2, notFrozen: 0 };
  await without.create('abc');
  expect(await without.hook({ ...pause, freeze })).toMatchObject({
    status: 501,
    text: expect.stringContaining('--pause freeze'),
  });
  expect((await frozen.hook({ ...pause, freeze })).status).toBe(200);
  expect((await frozen.hook({ ...pause, freeze: null })).status).toBe(501);
  expect((await frozen.hook({ ...pause, freeze: { ...freeze, notFrozen: 1 } })).status).toBe(501);
  expect((await frozen.hook({ event: 'resume', sandboxID: 'abc' })).status).toBe(200);
  cluster.remove('sandbox-abc');
  expect((await frozen.hook({ event: 'resume', sandboxID: 'abc' })).text).toContain('it has no Pod');
});

test('the program goes on where the API server begins again', async () => {
  const program = await start();
  await program.create('abc');
  cluster.refuse = (request) => (request === 'GET pods' ? [503, 'the server is starting'] : null);
  cluster.dropWatches();
  cluster.remove('sandbox-abc');
  await until('the health is bad', async () => (await fetch(`${program.url}/health`)).status === 503);
  expect((await program.hook({ event: 'list' })).status).toBe(503);
  cluster.refuse = () => null;
  await until('the health is good', async () => (await fetch(`${program.url}/health`)).status === 200);
  expect(await program.hook({ event: 'list' })).toEqual({ status: 200, text: '' });
});

test('a creation takes a warm Pod by two requests, and the pool is filled again', async () => {
  cluster.template('base', { 'pod.yaml': POD, warm: '2' });
  const program = await start();
  await until('the pool is full', isWarm(2));
  await until('that is known', async () => (await program.metric('warm_pods{state="ready"}')) === 2);
  const before = cluster.requests.length;
  cluster.refuse = (request) => (request === 'POST pods' ? [500, 'no creation may be needed'] : null);
  expect((await program.create('abc', { owner: 'ada' })).status).toBe(200);
  expect(cluster.requests.slice(before).filter((request) => request !== 'POST pods')).toEqual([
    'GET pods',
    'PATCH pods',
  ]);
  const [used] = cluster.labelled('envd/sandbox', 'abc');
  expect(used?.metadata).toMatchObject({
    labels: { 'envd/state': 'used' },
    annotations: { 'envd/owner': 'ada' },
  });
  cluster.refuse = () => null;
  await until('the pool is full again', isWarm(2));
  expect(cluster.pods).toHaveLength(3);
});

test('no warm Pod is given to two sandboxes, by two programs with 20 creations at once', async () => {
  cluster.template('base', { 'pod.yaml': POD, warm: '10' });
  const [one, other] = [await start(), await start()];
  await until('the pool is full', isWarm(10));
  const ids = Array.from({ length: 20 }, (_, index) => `s${index}`);
  const answers = await Promise.all(ids.map((id, index) => (index % 2 ? one : other).create(id)));
  expect(answers.filter(({ status }) => status !== 200)).toEqual([]);
  for (const id of ids) expect(cluster.labelled('envd/sandbox', id)).toHaveLength(1);
  await until('the pool is full again', isWarm(10));
  expect(cluster.pods).toHaveLength(30);
});

test('a pool follows its template, and removes nothing that is used', async () => {
  cluster.template('base', { 'pod.yaml': POD, warm: '3' });
  const program = await start();
  await until('the pool is full', isWarm(3));
  await program.create('abc');
  await until('the pool is full again', isWarm(3));
  const before = new Set(cluster.pods.map(({ metadata }) => metadata.uid));
  cluster.template('base', { 'pod.yaml': POD.replace('debian', 'alpine'), warm: '2' });
  const warm = () => cluster.labelled('envd/state', 'warm');
  await until(
    'the pool is new',
    () => warm().length === 2 && warm().every(({ metadata }) => !before.has(metadata.uid)),
  );
  expect(warm().map(({ spec }) => spec.containers[0].image)).toEqual(['alpine', 'alpine']);
  expect(cluster.labelled('envd/sandbox', 'abc')).toHaveLength(1);
  // A fault in a template is told, and ends nothing.
  cluster.template('base', { 'pod.yaml': '{', warm: '2' });
  await until('the fault is told', () => program.log.some(({ msg }) => msg === 'a template cannot be used'));
  expect(warm()).toHaveLength(2);
});

test('Pods of a pool that fail are made again with a growing delay, and not in a loop', async () => {
  cluster.onPod = () => ({ phase: 'Failed', reason: 'Evicted' });
  cluster.template('base', { 'pod.yaml': POD, warm: '1' });
  const program = await start();
  const failures = () =>
    program.log.filter(({ msg }) => String(msg).startsWith('a Pod of a pool has failed'));
  await until('two have failed', () => failures().length >= 2);
  expect(
    failures()
      .map(({ delayMs }) => delayMs)
      .slice(0, 2),
  ).toEqual([1000, 2000]);
  expect(cluster.requests.filter((request) => request === 'POST pods')).toHaveLength(2);
});
