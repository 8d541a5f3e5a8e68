import { expect, test } from 'vitest';
import { TestKubernetes } from '../support/programs/kubernetes.ts';
import { owned } from '../support/programs/owned.ts';
import { CutOff } from '../support/servers/cut-off.ts';
import { kubernetesScene } from '../support/servers/kubernetes-scene.ts';
import { until } from '../support/until.ts';

/* What the API server and other programs do between two requests of this one, or before its watch tells of it. */

const POD = `
apiVersion: v1
kind: Pod
spec:
  containers: [{name: sandbox, image: debian, volumeMounts: [{name: home, mountPath: /home/user}]}]
  volumes:
    - name: home
      ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}
`;
const PAUSE = { event: 'expire', outcome: 'pause', memory: false, freeze: null } as const;
const RESUME = { event: 'resume', memory: false } as const;

const scene = kubernetesScene({ 'pod.yaml': POD });
const { start } = scene;
const warm = () => scene.cluster.labelled('envd/state', 'warm');
const poolOf = (program: TestKubernetes, count: number) =>
  until('the pool is full', async () => (await program.metric('warm_pods{state="ready"}')) === count);

/** Starts a program whose watches can be held. */
async function startBehind(...args: readonly string[]) {
  const way = await owned(new CutOff(scene.cluster.url).start());
  return { way, program: await owned(new TestKubernetes(way.url, args).start()) };
}

test('warm Pods that are ending are not given to a sandbox', async () => {
  scene.cluster.template('base', { 'pod.yaml': POD, warm: '2' });
  const { way, program } = await startBehind();
  await poolOf(program, 2);
  way.holdWatches();
  for (const { metadata } of warm()) scene.cluster.end(metadata.name);
  const created = program.create('abc');
  const names = () => scene.cluster.labelled('envd/sandbox', 'abc').map(({ metadata }) => metadata.name);
  await until('it has a Pod of its own', () => names().includes('sandbox-abc'));
  way.releaseWatches();
  expect((await created).status).toBe(200);
});

test('a creation that is asked for twice takes one Pod of a pool, also when two programs are asked', async () => {
  scene.cluster.template('base', { 'pod.yaml': POD, warm: '8' });
  const [one, other] = [await start('--pool-starts=8'), await start('--pool-starts=8')];
  for (const each of [one, other]) await poolOf(each, 8);
  const [first, second] = await Promise.all([one.create('abc'), other.create('abc')]);
  expect([first.status, second.status]).toEqual([200, 200]);
  expect(scene.cluster.labelled('envd/sandbox', 'abc')).toHaveLength(1);
});

test('a Pod is not taken for the one of the same name before it', async () => {
  const [one, { way, program }] = [await start('--pause=disk'), await startBehind('--pause=disk')];
  await one.create('abc');
  await until('the other program knows it', async () => (await program.metric('sandboxes')) === 1);
  scene.cluster.end('sandbox-abc');
  const listed = async () => (await program.hook({ event: 'list' })).text;
  await until('it knows that it ends', async () => !(await listed()).includes('abc'));
  way.holdWatches();
  scene.cluster.remove('sandbox-abc');
  const created = program.create('abc');
  await until('the new one is there', () => scene.cluster.labelled('envd/sandbox', 'abc').length === 1);
  way.releaseWatches();
  expect((await created).status).toBe(200);
  expect(scene.cluster.labelled('envd/sandbox', 'abc')).toHaveLength(1);
});

test.each(['GET', 'PATCH'])(
  'a pause keeps no claim of another Pod that has the name by its %s',
  async (verb) => {
    scene.cluster.template('base', { 'pod.yaml': POD, warm: '1' });
    const program = await start('--pause=disk');
    await poolOf(program, 1);
    await program.create('abc');
    const [pod] = scene.cluster.labelled('envd/sandbox', 'abc');
    const name = pod?.metadata.name ?? '';
    // What the program tells may still be of the Pod that was taken.
    await until('the pool is full again', () => warm().length === 1);
    await poolOf(program, 1);
    let isOver = false;
    scene.cluster.refuse = (request) => {
      if (request !== `${verb} persistentvolumeclaims` || isOver) return null;
      isOver = true;
      // It is evicted just now, and a pool makes its name again.
      scene.cluster.remove(name);
      scene.cluster.add({
        ...pod,
        metadata: { name, labels: { 'envd/template': 'base', 'envd/state': 'warm' } },
      });
      return null;
    };
    const { status, text } = await program.hook({ ...PAUSE, sandboxID: 'abc' });
    expect([status, text]).toEqual([404, expect.stringContaining("the disk of sandbox 'abc' is gone")]);
    expect(scene.cluster.claims.map(({ metadata }) => metadata.labels['envd/sandbox'])).toEqual([
      undefined,
      undefined,
    ]);
  },
);

test('a pause of a sandbox without a Pod says so', async () => {
  const program = await start('--pause=disk');
  const { status, text } = await program.hook({ ...PAUSE, sandboxID: 'abc' });
  expect([status, text]).toEqual([404, expect.stringContaining("sandbox 'abc' has no Pod")]);
});

test('what an API server that has too much to do refuses is asked for again', async () => {
  const program = await start('--pause=disk');
  const refused = new Set<string>();
  scene.cluster.refuse = (request) => {
    if (refused.has(request)) return null;
    refused.add(request);
    return [429, 'too many requests'];
  };
  expect((await program.create('abc')).status).toBe(200);
  expect((await program.hook({ ...PAUSE, sandboxID: 'abc' })).status).toBe(200);
  expect((await program.hook({ ...RESUME, sandboxID: 'abc' })).status).toBe(200);
  expect((await program.hook({ event: 'kill', sandboxID: 'abc' })).status).toBe(200);
  expect([...refused].sort()).toEqual([
    'DELETE persistentvolumeclaims',
    'DELETE pods',
    'GET persistentvolumeclaims',
    'GET pods',
    'PATCH persistentvolumeclaims',
    'POST pods',
  ]);
  expect([scene.cluster.pods, scene.cluster.claims]).toEqual([[], []]);
});

test('programs of two versions, as in an update, do not remove the Pods of each other in a loop', async () => {
  scene.cluster.template('base', { 'pod.yaml': POD, warm: '3' });
  const old = await start('--daemon-image=registry.example/envd:1');
  await poolOf(old, 3);
  const next = await start('--daemon-image=registry.example/envd:2');
  const poolsOf = (template: string) => {
    const pods = warm().filter(({ metadata }) => metadata.labels['envd/template'] === template);
    const images = pods.map(({ spec }) => spec.initContainers[0].image.at(-1)).sort();
    return { images: images.join(''), uids: pods.map(({ metadata }) => metadata.uid).sort() };
  };
  await until('both have a pool', () => poolsOf('base').images === '111222');
  const { uids } = poolsOf('base');
  // A round of each program follows from what changes.
  scene.cluster.template('other', { 'pod.yaml': POD, warm: '1' });
  await until('both have seen that', () => poolsOf('other').images === '12');
  expect(poolsOf('base').uids).toEqual(uids);
  expect((await next.create('abc')).status).toBe(200);
  expect(scene.cluster.labelled('envd/sandbox', 'abc')[0]?.spec.initContainers[0].image).toMatch(/2$/);
});

test('a removal is answered when the Pod is gone, also while the cluster is not known yet', async () => {
  const other = await start();
  await other.create('abc');
  scene.cluster.refuse = (request) => (request === 'GET pods' ? [500, 'not now'] : null);
  const program = await start();
  scene.cluster.refuse = (request, name) => {
    if (request !== 'DELETE pods') return null;
    scene.cluster.end(name);
    return [200, 'it ends'];
  };
  let isAnswered = false;
  const removed = program.hook({ event: 'kill', sandboxID: 'abc' }).finally(() => {
    isAnswered = true;
  });
  await until('the cluster is known', async () => (await fetch(`${program.url}/health`)).status === 200);
  expect(isAnswered).toBe(false);
  scene.cluster.remove('sandbox-abc');
  expect((await removed).status).toBe(200);
});
