import { expect, test } from 'vitest';
import { signed } from '../support/programs/kubernetes.ts';
import { READY } from '../support/servers/fake-kubernetes.ts';
import { kubernetesScene } from '../support/servers/kubernetes-scene.ts';
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

const scene = kubernetesScene({ 'pod.yaml': POD, 'init.json': '{"defaultUser":"root"}' });
const { start } = scene;

const isWarm = (count: number) => () =>
  scene.cluster.labelled('envd/state', 'warm').filter(({ status }) => status && 'conditions' in status)
    .length === count;

test('a creation makes a Pod, waits until it is ready, and answers with its address', async () => {
  const program = await start();
  scene.cluster.onPod = () => null;
  const answer = program.create('abc', { owner: 'ada lovelace' });
  await until('the Pod is there', () => scene.cluster.pods.length === 1);
  scene.cluster.status('sandbox-abc', { ...READY, podIP: '10.1.2.4' });
  expect(await answer).toEqual({
    status: 200,
    body: { address: '10.1.2.4', port: 49983, cpuCount: 2, memoryMB: 256, init: { defaultUser: 'root' } },
  });
  const [pod] = scene.cluster.pods;
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
  const spec = scene.cluster.pods[0]?.spec;
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
  scene.cluster.template('base', { 'pod.yaml': more });
  const program = await start();
  await program.create('abc');
  const { automountServiceAccountToken, securityContext, containers, volumes } =
    scene.cluster.pods[0]?.spec ?? {};
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
  expect(scene.cluster.pods).toEqual([]);
  expect(await post(signed(body))).toBe(200);
});

test('a creation that is asked for twice has one Pod, also when two programs are asked', async () => {
  const [one, other] = [await start(), await start()];
  const answers = await Promise.all([one.create('abc'), one.create('abc'), other.create('abc')]);
  expect(answers.map(({ status }) => status)).toEqual([200, 200, 200]);
  expect(await other.create('abc')).toEqual(answers[0]);
  expect(scene.cluster.pods).toHaveLength(1);
});

test('a removal ends the Pod of the sandbox alone, and is repeated without harm', async () => {
  const program = await start();
  await Promise.all([program.create('abc'), program.create('abd')]);
  expect((await program.hook({ event: 'list' })).text.split('\n').sort()).toEqual(['', 'abc', 'abd']);
  expect((await program.hook({ event: 'kill', sandboxID: 'abc', outcome: 'remove' })).status).toBe(200);
  expect(scene.cluster.pods.map(({ metadata }) => metadata.name)).toEqual(['sandbox-abd']);
  expect((await program.hook({ event: 'kill', sandboxID: 'abc', outcome: 'remove' })).status).toBe(200);
  expect((await program.hook({ event: 'expire', sandboxID: 'abd', outcome: 'remove' })).status).toBe(200);
  await until('no sandbox is listed', async () => (await program.hook({ event: 'list' })).text === '');
});

test('a Pod that was deleted or has failed is not listed', async () => {
  const program = await start();
  await Promise.all(['abc', 'abd', 'abe'].map((id) => program.create(id)));
  scene.cluster.remove('sandbox-abc');
  scene.cluster.status('sandbox-abd', { phase: 'Failed', reason: 'Evicted' });
  const listed = async () => (await program.hook({ event: 'list' })).text;
  const left = 'abe\nabd ended: Evicted\n';
  expect(await until('one is left', listed, (text) => text.length === left.length)).toBe(left);
});

test('why a Pod has ended is told when it is gone, but not when the sandbox has another Pod', async () => {
  const program = await start();
  await program.create('abc');
  const conditions = [
    { type: 'DisruptionTarget', status: 'True', reason: 'EvictionByEvictionAPI', message: 'a\ndrain' },
  ];
  scene.cluster.status('sandbox-abc', { ...READY, conditions });
  await until('it is counted', async () => (await program.metric('ended_pods_total')) === 1);
  scene.cluster.remove('sandbox-abc');
  const listed = async () => (await program.hook({ event: 'list' })).text;
  await until(
    'the reason is told',
    async () => (await listed()) === 'abc ended: EvictionByEvictionAPI: a drain\n',
  );
  await program.create('abc');
  expect(await listed()).toBe('abc\n');
  await program.hook({ event: 'kill', sandboxID: 'abc' });
  expect(await listed()).toBe('');
});

test('a sandbox has ended with the container of its daemon, although another container goes on', async () => {
  scene.cluster.template('base', { 'pod.yaml': `${POD}    - {name: other, image: debian}\n`, warm: '1' });
  const program = await start();
  await until('a Pod is warm', isWarm(1));
  const other = { name: 'other', state: { running: {} } };
  const ended = (reason: string, exitCode: number) => {
    const sandbox = { name: 'sandbox', state: { terminated: { reason, exitCode } } };
    return { phase: 'Running', podIP: '10.1.2.3', containerStatuses: [sandbox, other] };
  };
  const [first] = scene.cluster.labelled('envd/state', 'warm');
  scene.cluster.status(first?.metadata.name ?? '', ended('Error', 1));
  await until('it goes', () => scene.cluster.labelled('envd/state', 'warm').length === 0);
  await program.create('abc');
  const [pod] = scene.cluster.labelled('envd/sandbox', 'abc');
  scene.cluster.status(pod?.metadata.name ?? '', ended('Completed', 0));
  const listed = async () => (await program.hook({ event: 'list' })).text;
  const told = "abc ended: container 'sandbox': Completed\n";
  expect(await until('it is told', listed, (text) => text === told)).toBe(told);
});

test('no sandbox gets the address of one that has ended, as long as the gateway may not know of that', async () => {
  scene.cluster.template('base', { 'pod.yaml': POD, warm: '1' });
  const [program, shared] = [await start(), '10.1.2.3'];
  await until('a Pod is warm', isWarm(1));
  expect((await program.create('abc')).body.address).toBe(shared);
  const [pod] = scene.cluster.labelled('envd/sandbox', 'abc');
  scene.cluster.status(pod?.metadata.name ?? '', { phase: 'Failed', podIP: shared });
  await until('it has ended', async () => (await program.metric('ended_pods_total')) === 1);
  await until('another Pod is warm', isWarm(1));
  scene.cluster.onPod = () => ({ ...READY, podIP: '10.1.2.4' });
  expect((await program.create('abd')).body.address).toBe('10.1.2.4');
  scene.cluster.onPod = () => ({ ...READY, podIP: shared });
  const refused = await program.create('abe');
  expect([refused.status, refused.body.message]).toEqual([503, expect.stringContaining(shared)]);
  expect(scene.cluster.labelled('envd/sandbox', 'abe')).toEqual([]);
  await program.hook({ event: 'kill', sandboxID: 'abc' });
  expect((await program.create('abf')).body.address).toBe(shared);
});

test('a Pod that was to be evicted, and was not, is told when it ends', async () => {
  const program = await start();
  await program.create('abc');
  const target = (status: string) => ({ type: 'DisruptionTarget', status, reason: 'EvictionByEvictionAPI' });
  for (const status of ['True', 'False'])
    scene.cluster.status('sandbox-abc', { ...READY, conditions: [target(status)] });
  scene.cluster.status('sandbox-abc', { phase: 'Failed', reason: 'DeadlineExceeded' });
  const listed = async () => (await program.hook({ event: 'list' })).text;
  await until('it is not listed', async () => !/^abc$/m.test(await listed()));
  expect(await listed()).toBe('abc ended: DeadlineExceeded\n');
});

test('why a Pod has ended is told, although its status changes again before it has ended', async () => {
  const program = await start();
  await program.create('abc');
  const disruption = { type: 'DisruptionTarget', status: 'True', reason: 'TerminationByKubelet' };
  const conditions = [{ ...disruption, message: 'The node was low on memory.' }];
  scene.cluster.status('sandbox-abc', { ...READY, conditions });
  // The kubelet tells of each container that ends.
  scene.cluster.status('sandbox-abc', { ...READY, conditions, containerStatuses: [] });
  scene.cluster.status('sandbox-abc', { phase: 'Failed', conditions, reason: 'Evicted' });
  const listed = async () => (await program.hook({ event: 'list' })).text;
  await until('it is not listed', async () => !/^abc$/m.test(await listed()));
  expect(await listed()).toBe('abc ended: TerminationByKubelet: The node was low on memory.\n');
});

test.each([
  [
    { phase: 'Failed', reason: 'Evicted', message: 'The node was low on memory.' },
    'Evicted: The node was low on memory.',
  ],
  [
    {
      phase: 'Failed',
      containerStatuses: [{ name: 'sandbox', state: { terminated: { exitCode: 137, reason: 'OOMKilled' } } }],
    },
    "container 'sandbox': OOMKilled",
  ],
  [
    {
      ...READY,
      conditions: [
        { type: 'DisruptionTarget', status: 'True', reason: 'EvictionByEvictionAPI', message: 'a drain' },
      ],
    },
    'EvictionByEvictionAPI: a drain',
  ],
])('a Pod that has ended is told once, with its reason: %j', async (status, reason) => {
  const program = await start();
  await Promise.all([program.create('abc'), program.create('abd')]);
  scene.cluster.status('sandbox-abc', status);
  scene.cluster.status('sandbox-abc', status);
  await until('it is counted', async () => (await program.metric('ended_pods_total')) > 0);
  await program.hook({ event: 'kill', sandboxID: 'abc' });
  await program.hook({ event: 'kill', sandboxID: 'abd' });
  const told = () => program.log.filter(({ msg }) => msg === 'the Pod of a sandbox has ended');
  await until('it is in the log', () => told().length > 0);
  expect(told()).toMatchObject([{ sandboxID: 'abc', pod: 'sandbox-abc', reason }]);
  expect(scene.cluster.pods).toEqual([]);
});

test('a creation fails with the words of the scheduler, and leaves no Pod', async () => {
  const program = await start('--pod-timeout=1');
  const message = '0/3 nodes are available: 3 Insufficient memory.';
  scene.cluster.onPod = () => ({
    phase: 'Pending',
    conditions: [{ type: 'PodScheduled', status: 'False', reason: 'Unschedulable', message }],
  });
  expect((await program.create('abc')).body).toEqual({
    error: `no node has room for the sandbox: ${message}`,
    code: 429,
  });
  expect(scene.cluster.pods).toEqual([]);
});

test('a Pod that cannot run fails its creation at once, with the reason', async () => {
  const program = await start();
  scene.cluster.onPod = () => ({
    phase: 'Failed',
    initContainerStatuses: [{ name: 'envd', state: { terminated: { exitCode: 1, reason: 'Error' } } }],
  });
  const { status, body } = await program.create('abc');
  expect([status, body.message]).toEqual([503, "Pod 'sandbox-abc' cannot run: container 'envd': Error"]);
  expect(scene.cluster.pods).toEqual([]);
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
  scene.cluster.refuse = (request) =>
    request === 'POST pods'
      ? [403, 'pods "x" is forbidden: exceeded quota: sandboxes, requested: pods=1']
      : null;
  expect(await error({})).toMatchObject({
    code: 429,
    error: expect.stringContaining('exceeded quota: sandboxes'),
  });
  expect(scene.cluster.pods).toEqual([]);
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
  scene.cluster.template('base', { 'pod.yaml': pod });
  const program = await start();
  const { status, body } = await program.create('abc');
  expect([status, body.message]).toEqual([412, expect.stringContaining(message)]);
});

test('a sandbox keeps off nodes that are drained', async () => {
  const program = await start();
  // The API server takes one name in each requirement, and only names that a node can have.
  await program.create('abc', { drainedHosts: ['node-1', 'node-2.example', 'Host of another cluster'] });
  const { nodeAffinity } = scene.cluster.pods[0]?.spec.affinity ?? {};
  expect(nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms).toEqual([
    {
      matchFields: ['node-1', 'node-2.example'].map((name) => {
        return { key: 'metadata.name', operator: 'NotIn', values: [name] };
      }),
    },
  ]);
  await program.create('abd', { drainedHosts: ['Host of another cluster'] });
  expect(scene.cluster.pods[1]?.spec).not.toHaveProperty('affinity');
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
  scene.cluster.remove('sandbox-abc');
  expect((await frozen.hook({ event: 'resume', sandboxID: 'abc' })).text).toContain('it has no Pod');
});

test('the program goes on where the API server begins again', async () => {
  const program = await start();
  await program.create('abc');
  scene.cluster.refuse = (request) => (request === 'GET pods' ? [503, 'the server is starting'] : null);
  scene.cluster.dropWatches();
  scene.cluster.remove('sandbox-abc');
  await until('the health is bad', async () => (await fetch(`${program.url}/health`)).status === 503);
  expect((await program.hook({ event: 'list' })).status).toBe(503);
  scene.cluster.refuse = () => null;
  await until('the health is good', async () => (await fetch(`${program.url}/health`)).status === 200);
  expect(await program.hook({ event: 'list' })).toEqual({ status: 200, text: '' });
});

test('a creation takes a warm Pod by two requests, and the pool is filled again', async () => {
  scene.cluster.template('base', { 'pod.yaml': POD, warm: '2' });
  const program = await start();
  await until('the pool is full', isWarm(2));
  await until('that is known', async () => (await program.metric('warm_pods{state="ready"}')) === 2);
  const before = scene.cluster.requests.length;
  scene.cluster.refuse = (request) => (request === 'POST pods' ? [500, 'no creation may be needed'] : null);
  expect((await program.create('abc', { owner: 'ada' })).status).toBe(200);
  expect(scene.cluster.requests.slice(before).filter((request) => request !== 'POST pods')).toEqual([
    'GET pods',
    'PATCH pods',
  ]);
  const [used] = scene.cluster.labelled('envd/sandbox', 'abc');
  expect(used?.metadata).toMatchObject({
    labels: { 'envd/state': 'used' },
    annotations: { 'envd/owner': 'ada' },
  });
  scene.cluster.refuse = () => null;
  await until('the pool is full again', isWarm(2));
  expect(scene.cluster.pods).toHaveLength(3);
});

test('no Pod is given to two sandboxes, by two programs with 100 creations at once', async () => {
  scene.cluster.template('base', { 'pod.yaml': POD, warm: '40' });
  let count = 0;
  scene.cluster.onPod = () => ({ ...READY, podIP: `10.1.2.${++count}` });
  const [one, other] = [await start('--pool-starts=40'), await start('--pool-starts=40')];
  await until('the pool is full', isWarm(40));
  const ids = Array.from({ length: 100 }, (_, index) => `s${index}`);
  const answers = await Promise.all(ids.map((id, index) => (index % 2 ? one : other).create(id)));
  expect(answers.filter(({ status }) => status !== 200)).toEqual([]);
  expect(new Set(answers.map(({ body }) => body.address)).size).toBe(100);
  for (const id of ids) expect(scene.cluster.labelled('envd/sandbox', id)).toHaveLength(1);
  await until(
    'the pool is full again, and nothing is left',
    () => isWarm(40)() && scene.cluster.pods.length === 140,
  );
});

test('a pool follows its template, and removes nothing that is used', async () => {
  scene.cluster.template('base', { 'pod.yaml': POD, warm: '3' });
  const program = await start();
  await until('the pool is full', isWarm(3));
  await program.create('abc');
  await until('the pool is full again', isWarm(3));
  const before = new Set(scene.cluster.pods.map(({ metadata }) => metadata.uid));
  scene.cluster.template('base', { 'pod.yaml': POD.replace('debian', 'alpine'), warm: '2' });
  const warm = () => scene.cluster.labelled('envd/state', 'warm');
  await until(
    'the pool is new',
    () => warm().length === 2 && warm().every(({ metadata }) => !before.has(metadata.uid)),
  );
  expect(warm().map(({ spec }) => spec.containers[0].image)).toEqual(['alpine', 'alpine']);
  expect(scene.cluster.labelled('envd/sandbox', 'abc')).toHaveLength(1);
  // A smaller number alone ends what is beyond it.
  const uids = warm().map(({ metadata }) => metadata.uid);
  scene.cluster.template('base', { 'pod.yaml': POD.replace('debian', 'alpine'), warm: '1' });
  await until('the pool is smaller', () => warm().length === 1);
  expect(uids).toContain(warm()[0]?.metadata.uid);
  // A fault in a template is told, and ends nothing.
  scene.cluster.template('base', { 'pod.yaml': '{', warm: '2' });
  await until('the fault is told', () => program.log.some(({ msg }) => msg === 'a template cannot be used'));
  expect(warm()).toHaveLength(1);
});

test('Pods of a pool that fail are made again with a growing delay, and not in a loop', async () => {
  scene.cluster.onPod = () => ({ phase: 'Failed', reason: 'Evicted' });
  scene.cluster.template('base', { 'pod.yaml': POD, warm: '1' });
  const program = await start();
  const failures = () =>
    program.log.filter(({ msg }) => String(msg).startsWith('a Pod of a pool has failed'));
  await until('two have failed', () => failures().length >= 2);
  expect(
    failures()
      .map(({ delayMs }) => delayMs)
      .slice(0, 2),
  ).toEqual([1000, 2000]);
  expect(scene.cluster.requests.filter((request) => request === 'POST pods')).toHaveLength(2);
});

test('a pool is filled again when the sandbox had time for its first command', async () => {
  scene.cluster.template('base', { 'pod.yaml': POD, warm: '1' });
  const program = await start();
  const isReady = async () => (await program.metric('warm_pods{state="ready"}')) === 1;
  await until('a Pod is warm', isReady);
  const made = Promise.withResolvers<number>();
  scene.cluster.onPod = () => {
    made.resolve(performance.now());
    return { ...READY, podIP: '10.1.2.5' };
  };
  const asked = performance.now();
  expect((await program.create('abc')).body.address).toBe('10.1.2.3');
  expect((await made.promise) - asked).toBeGreaterThan(900);
  await until('a Pod is warm again', isReady);
});

test('the pool of one template is filled, although Pods of another one are taken all the time', async () => {
  scene.cluster.template('base', { 'pod.yaml': POD, warm: '3' });
  const program = await start();
  await until('the pool is full', isWarm(3));
  await until('that is known', async () => (await program.metric('warm_pods{state="ready"}')) === 3);
  expect((await program.create('abc')).status).toBe(200);
  const [used] = scene.cluster.labelled('envd/sandbox', 'abc');
  const ofTemplate = (id: string) =>
    scene.cluster.labelled('envd/template', id).filter((pod) => pod.metadata.labels['envd/state'] === 'warm');
  const removeAll = () => ofTemplate('base').forEach((pod) => void scene.cluster.remove(pod.metadata.name));
  // Each new Pod goes at once, and what is told of the used one looks as if it had been taken just now.
  scene.cluster.onPod = () => {
    scene.cluster.status(used?.metadata.name ?? '', { ...READY, podIP: '10.1.2.3' });
    setTimeout(removeAll, 1);
    return { ...READY, podIP: '10.1.2.5' };
  };
  removeAll();
  scene.cluster.template('other', { 'pod.yaml': POD, warm: '1' });
  await until('the other one has a warm Pod', () => ofTemplate('other').length === 1);
});
