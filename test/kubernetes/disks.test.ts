import { expect, test } from 'vitest';
import { kubernetesScene } from '../support/servers/kubernetes-scene.ts';
import { until } from '../support/until.ts';

/* Pauses that keep the disk: the Pod goes, the claims of its ephemeral volumes stay, and a resume makes a Pod with them. */

const POD = `
apiVersion: v1
kind: Pod
spec:
  containers:
    - name: sandbox
      image: debian
      volumeMounts: [{name: home, mountPath: /home/user}]
  volumes:
    - name: home
      ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}
    - name: shared
      persistentVolumeClaim: {claimName: shared}
`;
const INIT = '{"defaultUser":"user"}';
const PAUSE = { event: 'expire', outcome: 'pause', memory: false, freeze: null } as const;
const RESUME = { event: 'resume', memory: false } as const;

const scene = kubernetesScene({ 'pod.yaml': POD, 'init.json': INIT, warm: '1' });
const { start } = scene;
const isFull = async (program: { metric(name: string): Promise<number> }) =>
  (await program.metric('warm_pods{state="ready"}')) === 1;

test.each(['a pool', 'no pool'])(
  'a sandbox of %s is paused without its Pod, and resumed with its disk',
  async (from) => {
    if (from === 'no pool') scene.cluster.template('base', { 'pod.yaml': POD, 'init.json': INIT });
    const program = await start('--pause=freeze,disk');
    if (from === 'a pool') await until('a Pod is warm', () => isFull(program));
    await program.create('abc', { owner: 'ada' });
    const [pod] = scene.cluster.labelled('envd/sandbox', 'abc');
    const disk = `${pod?.metadata.name}-home`;
    expect((await program.hook({ ...PAUSE, sandboxID: 'abc' })).status).toBe(200);
    expect(scene.cluster.labelled('envd/sandbox', 'abc')).toEqual([]);
    const kept = () =>
      scene.cluster.claims.filter(({ metadata }) => metadata.labels['envd/sandbox'] === 'abc');
    expect(kept().map(({ metadata }) => metadata.name)).toEqual([disk]);
    expect((await program.hook({ event: 'list' })).text).toBe('abc\n');
    // A new Pod of the name of the one that is gone could have no claim of its own.
    if (from === 'a pool') await until('the pool is full again', () => isFull(program));
    // The gateway may ask again.
    expect((await program.hook({ ...PAUSE, sandboxID: 'abc' })).status).toBe(200);

    const { text } = await program.hook({ ...RESUME, sandboxID: 'abc', drainedHosts: ['node-1'] });
    expect(JSON.parse(text)).toEqual({ address: '10.1.2.3', port: 49983, init: { defaultUser: 'user' } });
    expect(await program.hook({ ...RESUME, sandboxID: 'abc' })).toMatchObject({ status: 200, text });
    const [again, ...others] = scene.cluster.labelled('envd/sandbox', 'abc');
    expect([again?.metadata.name, others]).toEqual(['sandbox-abc', []]);
    expect(again?.metadata.annotations?.['envd/owner']).toBe('ada');
    expect(again?.spec.volumes.slice(0, 2)).toEqual([
      { name: 'home', persistentVolumeClaim: { claimName: disk } },
      { name: 'shared', persistentVolumeClaim: { claimName: 'shared' } },
    ]);
    expect(again?.spec.affinity).toBeDefined();

    expect((await program.hook({ ...PAUSE, sandboxID: 'abc' })).status).toBe(200);
    expect(kept().map(({ metadata }) => metadata.name)).toEqual([disk]);
    expect((await program.hook({ event: 'kill', sandboxID: 'abc' })).status).toBe(200);
    expect(kept()).toEqual([]);
    expect((await program.hook({ event: 'list' })).text).toBe('');
  },
);

test('a sandbox that is removed without a pause leaves no disk', async () => {
  const program = await start('--pause=disk');
  await program.create('abc');
  await program.hook({ event: 'kill', sandboxID: 'abc' });
  await until('the pool is full again', () => isFull(program));
  expect(scene.cluster.claims.map(({ metadata }) => metadata.labels)).toEqual([{}]);
});

test('a Pod that has ended is told when no pause can save its disk any more', async () => {
  const program = await start('--pause=disk');
  for (const id of ['abc', 'abd']) await program.create(id);
  const podOf = (id: string) => scene.cluster.labelled('envd/sandbox', id)[0]?.metadata.name ?? '';
  const pods = ['abc', 'abd'].map(podOf);
  for (const pod of pods) scene.cluster.status(pod, { phase: 'Failed', reason: 'Evicted' });
  const list = async () => (await program.hook({ event: 'list' })).text;
  await until('both are counted', async () => (await program.metric('ended_pods_total')) === 2);
  expect(await list()).toBe('');
  scene.cluster.remove(pods[1] ?? '');
  await until('the other one is told', async () => (await list()) === 'abd ended: Evicted\n');
  expect((await program.hook({ ...PAUSE, sandboxID: 'abc' })).status).toBe(200);
  expect(await list()).toBe('abc\nabd ended: Evicted\n');
});

test('a pause fails whose disk is being deleted, because the disk would go with the Pod', async () => {
  scene.cluster.template('base', { 'pod.yaml': POD });
  const program = await start('--pause=disk');
  await program.create('abc');
  scene.cluster.end('sandbox-abc-home', 'persistentvolumeclaims');
  const { status, text } = await program.hook({ ...PAUSE, sandboxID: 'abc' });
  expect([status, text]).toEqual([404, expect.stringContaining("the disk of sandbox 'abc' is gone")]);
  expect(scene.cluster.labelled('envd/sandbox', 'abc')).toHaveLength(1);
});

test('what a client has asked for its network holds after a pause, too', async () => {
  const program = await start('--pause=disk', '--network-policies');
  await program.create('abc', { request: { network: { denyOut: ['0.0.0.0/0'], allowOut: ['1.1.1.1'] } } });
  const before = scene.cluster.policies.map(({ spec }) => spec);
  await program.hook({ ...PAUSE, sandboxID: 'abc' });
  expect(scene.cluster.policies).toEqual([]);
  await program.hook({ ...RESUME, sandboxID: 'abc' });
  expect(scene.cluster.labelled('envd/egress', 'own')).toHaveLength(1);
  expect(scene.cluster.policies.map(({ spec }) => spec)).toEqual(before);
});

test('what cannot be paused without its memory goes on, with a sentence', async () => {
  const [program, without] = [await start('--pause=disk'), await start('--pause=freeze')];
  scene.cluster.template('plain', {
    'pod.yaml': 'apiVersion: v1\nkind: Pod\nspec: {containers: [{name: a, image: b}]}',
  });
  // That it is not known is an answer, too.
  await until('it is known', async () => (await program.create('abc', { templateID: 'plain' })).body.address);
  const refused = await program.hook({ ...PAUSE, sandboxID: 'abc' });
  expect([refused.status, refused.text]).toEqual([501, expect.stringContaining('needs an ephemeral volume')]);
  const flag = await without.hook({ ...PAUSE, sandboxID: 'abc' });
  expect([flag.status, flag.text]).toEqual([501, expect.stringContaining('--pause disk')]);
  const memory = await program.hook({ ...PAUSE, sandboxID: 'abc', memory: true });
  expect([memory.status, memory.text]).toEqual([501, expect.stringContaining('--pause freeze')]);
  expect(scene.cluster.labelled('envd/sandbox', 'abc')).toHaveLength(1);
});

test('a pause whose Pod cannot be removed keeps the sandbox, and a resume that fails keeps the disk', async () => {
  scene.cluster.template('base', { 'pod.yaml': POD });
  const [program, hasty] = [await start('--pause=disk'), await start('--pause=disk', '--pod-timeout=1')];
  await program.create('abc');
  scene.cluster.refuse = (request) => (request === 'DELETE pods' ? [500, 'not now'] : null);
  expect((await program.hook({ ...PAUSE, sandboxID: 'abc' })).status).toBe(503);
  expect(scene.cluster.labelled('envd/sandbox', 'abc')).toHaveLength(1);
  scene.cluster.refuse = () => null;
  expect((await program.hook({ ...PAUSE, sandboxID: 'abc' })).status).toBe(200);
  scene.cluster.onPod = () => null;
  expect((await hasty.hook({ ...RESUME, sandboxID: 'abc' })).status).toBe(503);
  expect(scene.cluster.labelled('envd/sandbox', 'abc')).toEqual([]);
  scene.cluster.template('base', { 'pod.yaml': POD.replaceAll('home', 'work') });
  const changed = () => hasty.hook({ ...RESUME, sandboxID: 'abc' });
  const answer = await until(
    'the template is known',
    changed,
    ({ text }) => text.includes('work') || text.includes('home'),
  );
  expect(answer).toMatchObject({
    status: 412,
    text: expect.stringContaining("has no ephemeral volume 'home'"),
  });
  expect((await program.hook({ event: 'list' })).text).toBe('abc\n');
});
