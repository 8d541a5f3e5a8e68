import { randomInt } from 'node:crypto';
import { Sandbox } from 'e2b';
import { afterEach, expect, test } from 'vitest';
import { startDaemon } from '../support/programs/daemon.ts';
import { API_KEY, startGateway } from '../support/programs/gateway.ts';
import { HOOK_SECRET, TestKubernetes } from '../support/programs/kubernetes.ts';
import { FakeKubernetes, READY } from '../support/servers/fake-kubernetes.ts';
import { until } from '../support/until.ts';

/* The published client, the gateway, this program and the daemon together. Only the cluster is none: a Pod is a daemon of this machine. */

const POD = 'apiVersion: v1\nkind: Pod\nspec: {containers: [{name: sandbox, image: debian}]}';
/** Each Pod has an address of its own, because all daemons have the same port; nobody else has one of this network. */
const NETWORK = `127.${randomInt(1, 255)}.${randomInt(255)}`;

const ending: AsyncDisposable[] = [];
afterEach(async () => {
  // What has not ended yet may begin something.
  for (let last = ending.pop(); last; last = ending.pop()) await last[Symbol.asyncDispose]();
});

function ends<T extends AsyncDisposable>(each: T): T {
  ending.push(each);
  return each;
}

/** A cluster whose Pods are ready when their daemon is. */
async function startCluster(): Promise<FakeKubernetes> {
  const cluster = ends(await new FakeKubernetes().start());
  let count = 0;
  cluster.onPod = ({ metadata: { name } }) => {
    const podIP = `${NETWORK}.${++count}`;
    const args = [`--host=${podIP}`, '--port=49983', '--require-token'];
    const starting = startDaemon({ args });
    // The pool may be filled again as the test ends.
    ends({ [Symbol.asyncDispose]: async () => (await starting)[Symbol.asyncDispose]() });
    void starting.then(() => cluster.status(name, { ...READY, podIP }));
    return null;
  };
  return cluster;
}

test('a sandbox is created from a pool, runs commands, and is killed', async () => {
  const cluster = await startCluster();
  cluster.template('base', { 'pod.yaml': POD, 'init.json': '{"defaultUser":"root"}', warm: '1' });
  const program = ends(await new TestKubernetes(cluster.url, []).start());
  const hook = (name: string) => `--${name}-hook=${program.url}/hooks`;
  const gateway = ends(
    await startGateway({
      args: [
        '--header-prefix=E2b',
        `--hook-secret=${HOOK_SECRET}`,
        hook('create'),
        hook('kill'),
        hook('list'),
      ],
    }),
  );
  await until('a Pod is warm', async () => (await program.metric('warm_pods{state="ready"}')) === 1);
  const options = { apiKey: API_KEY, apiUrl: gateway.url, sandboxUrl: gateway.url };
  const sandbox = await Sandbox.create('base', { ...options, envs: { WHO: 'ada' }, metadata: { run: '7' } });
  expect((await sandbox.commands.run('echo $WHO')).stdout).toBe('ada\n');
  const [pod] = cluster.labelled('envd/sandbox', sandbox.sandboxId);
  expect(pod?.metadata.name).toMatch(/^warm-base-/);
  expect(await sandbox.kill()).toBe(true);
  expect(cluster.labelled('envd/sandbox', sandbox.sandboxId)).toEqual([]);
  await expect(Sandbox.create('other', options)).rejects.toThrow("template 'other' is not known");
  expect(program.log.filter(({ level }) => level > 40)).toEqual([]);
});
