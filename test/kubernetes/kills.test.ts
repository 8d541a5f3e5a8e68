import { afterEach, beforeEach, expect, test } from 'vitest';
import { TestKubernetes } from '../support/programs/kubernetes.ts';
import { CutOff } from '../support/servers/cut-off.ts';
import { FakeKubernetes } from '../support/servers/fake-kubernetes.ts';
import { until } from '../support/until.ts';

/*
 * The program is killed at each request of what it does: before the API server has it, and before the program has the answer. Another one
 * goes on. Nothing may be left over, and nothing removed that is in use.
 */

const POD = 'apiVersion: v1\nkind: Pod\nspec: {containers: [{name: sandbox, image: debian}]}';
const DISK = `${POD.slice(0, -1)}, volumes: [{name: home, ephemeral: {volumeClaimTemplate: {spec: {}}}}]}`;
const FLAGS = ['--network-policies', '--pause=freeze,disk'];

let ending: AsyncDisposable[];
beforeEach(() => {
  ending = [];
});
afterEach(async () => {
  await Promise.all(ending.splice(0).map((each) => each[Symbol.asyncDispose]()));
});

function ends<T extends AsyncDisposable>(each: T): T {
  ending.push(each);
  return each;
}

interface Scene {
  readonly cluster: FakeKubernetes;
  readonly way: CutOff;
  /** Its way to the API server is cut. */
  readonly killed: TestKubernetes;
  readonly other: TestKubernetes;
}

async function prepare({ warm, from = 'nothing' }: Act): Promise<Scene> {
  const cluster = ends(await new FakeKubernetes().start());
  cluster.template('base', { 'pod.yaml': DISK, warm: String(warm) });
  const way = ends(await new CutOff(cluster.url).start());
  const [killed, other] = [new TestKubernetes(way.url, FLAGS), new TestKubernetes(cluster.url, FLAGS)];
  for (const each of [killed, other]) await ends(each).start();
  await other.create('bystander');
  if (from !== 'nothing') await other.create('abc');
  if (from === 'paused') await pause(other);
  for (const each of [killed, other])
    await until('the pool is full', async () => (await each.metric('warm_pods{state="ready"}')) === warm);
  return { cluster, way, killed, other };
}

/** What the program does when it is killed. */
interface Act {
  readonly what: string;
  readonly warm: number;
  readonly steps: readonly string[];
  /** What the sandbox is before. */
  readonly from?: 'nothing' | 'running' | 'paused';
  /** What there is of the sandbox when it is done. */
  readonly pods: number;
  readonly disks?: number;
  readonly policies?: number;
  run(program: TestKubernetes): Promise<{ readonly status: number }>;
}

const CLOSED = { request: { network: { denyOut: ['8.8.8.8'] } } };
const create = (program: TestKubernetes) => program.create('abc');
const kill = (program: TestKubernetes) =>
  program.hook({ event: 'kill', sandboxID: 'abc', outcome: 'remove' });
const pause = (program: TestKubernetes) =>
  program.hook({ event: 'expire', sandboxID: 'abc', outcome: 'pause', memory: false, freeze: null });
const resume = (program: TestKubernetes) =>
  program.hook({ event: 'resume', sandboxID: 'abc', outcome: 'resume', memory: false });
const ACTS: readonly Act[] = [
  { what: 'a creation without a pool', warm: 0, steps: ['GET pods', 'POST pods'], pods: 1, run: create },
  { what: 'a creation from a pool', warm: 2, steps: ['GET pods', 'PATCH pods'], pods: 1, run: create },
  {
    ...{ what: 'a creation with a policy', warm: 0, pods: 1, policies: 1 },
    steps: ['GET pods', 'POST pods', 'POST networkpolicies'],
    run: (program) => program.create('abc', CLOSED),
  },
  { what: 'a removal', warm: 1, steps: ['GET pods', 'DELETE pods'], from: 'running', pods: 0, run: kill },
  {
    ...{ what: 'a pause', warm: 1, from: 'running', pods: 0, disks: 1, run: pause },
    steps: ['GET pods', 'GET persistentvolumeclaims', 'PATCH persistentvolumeclaims', 'DELETE pods'],
  },
  {
    ...{ what: 'a resume', warm: 1, from: 'paused', pods: 1, disks: 1, run: resume },
    steps: ['GET persistentvolumeclaims', 'GET pods', 'POST pods'],
  },
  {
    ...{ what: 'a removal of what is paused', warm: 1, from: 'paused', pods: 0, run: kill },
    steps: ['GET pods', 'GET persistentvolumeclaims', 'DELETE persistentvolumeclaims'],
  },
];
/**
 * The gateway asks another program, and removes the sandbox later; or its client is gone, and it removes the sandbox at once; or it gives
 * up a pause or a resume.
 */
const ENDINGS = ['again', 'removed', 'goes on'] as const;

const CASES = ACTS.flatMap((act) =>
  act.steps.flatMap((step) =>
    (['before', 'after'] as const).flatMap((moment) =>
      ENDINGS.filter((next) => next !== 'goes on' || act.disks !== undefined).map((next) => ({
        ...act,
        step,
        moment,
        next,
      })),
    ),
  ),
);

test.each(CASES)('$what, killed $moment $step: $next', async ({ step, moment, next, ...act }) => {
  const { cluster, way, killed, other } = await prepare(act);
  const [bystander] = cluster.labelled('envd/sandbox', 'bystander');
  const [before] = disks(cluster);
  way.cutAt(step, moment);
  void act.run(killed);
  await until('it is killed', () => way.isCut);
  if (next === 'again') {
    expect((await act.run(other)).status).toBe(200);
    expect(cluster.labelled('envd/sandbox', 'abc')).toHaveLength(act.pods);
    expect(cluster.policies).toHaveLength(act.policies ?? 0);
    expect(disks(cluster)).toHaveLength(act.disks ?? 0);
    if (before && act.disks) expect(disks(cluster)).toEqual([before]);
  }
  if (next === 'goes on') {
    // The gateway has given up: what runs still has its disk, and is paused later.
    expect((await pause(other)).status).toBe(200);
    expect((await resume(other)).status).toBe(200);
    expect(cluster.labelled('envd/sandbox', 'abc')).toHaveLength(1);
    expect(disks(cluster)).toHaveLength(1);
  }
  expect((await kill(other)).status).toBe(200);
  expect(cluster.labelled('envd/sandbox', 'abc')).toEqual([]);
  expect(cluster.policies).toEqual([]);
  const isFull = () =>
    cluster.labelled('envd/state', 'warm').length === act.warm && cluster.pods.length === act.warm + 1;
  await until('the pool is full, and nothing else is there', isFull);
  expect(cluster.claims).toHaveLength(act.warm + 1);
  expect(disks(cluster)).toEqual([]);
  expect(cluster.labelled('envd/sandbox', 'bystander')).toEqual([bystander]);
});

/** The disks that stay for the sandbox. */
function disks({ claims }: FakeKubernetes): readonly string[] {
  return claims
    .filter(({ metadata }) => metadata.labels['envd/sandbox'] === 'abc')
    .map(({ metadata }) => metadata.uid);
}
