import { expect, test } from 'vitest';
import { egressRules, parseRange } from '../../src/kubernetes/pods/egress.ts';
import { kubernetesScene } from '../support/servers/kubernetes-scene.ts';
import { until } from '../support/until.ts';

/* What clients ask for the network of their sandboxes: a policy for each Pod. */

const POD = 'apiVersion: v1\nkind: Pod\nspec: {containers: [{name: sandbox, image: debian}]}';
const CLOSED = ['10.0.0.0/8', '100.64.0.0/10', '169.254.0.0/16', '172.16.0.0/12', '192.168.0.0/16'];
const DNS = {
  to: [{ namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': 'kube-system' } } }],
  ports: [
    { protocol: 'UDP', port: 53 },
    { protocol: 'TCP', port: 53 },
  ],
};

const scene = kubernetesScene({ 'pod.yaml': POD });
const { start } = scene;

const block = (cidr: string, ...except: readonly string[]) => ({
  to: [{ ipBlock: { cidr, ...(except.length > 0 && { except }) } }],
});

test.each([
  [{ allow_internet_access: false }, []],
  [{ network: { denyOut: ['0.0.0.0/0'] } }, []],
  [
    { network: { denyOut: ['8.8.8.8', '1.1.1.77/24'] } },
    [DNS, block('0.0.0.0/0', ...CLOSED, '8.8.8.8/32', '1.1.1.0/24')],
  ],
  [{ allow_internet_access: false, network: { allowOut: ['1.1.1.1'] } }, [block('1.1.1.1/32')]],
  [
    { network: { denyOut: ['0.0.0.0/0'], allowOut: ['172.0.0.0/8'] } },
    [block('172.0.0.0/8', '172.16.0.0/12')],
  ],
  [
    { network: { denyOut: ['8.0.0.0/8'], allowOut: ['8.8.8.8'] } },
    [DNS, block('0.0.0.0/0', ...CLOSED, '8.0.0.0/8'), block('8.8.8.8/32')],
  ],
])('%j is a policy of the Pod, which ends with it', async (request, egress) => {
  const program = await start('--network-policies');
  expect((await program.create('abc', { request })).status).toBe(200);
  const [pod] = scene.cluster.pods;
  expect(pod?.metadata.labels).toMatchObject({ 'envd/egress': 'own' });
  expect(scene.cluster.policies).toMatchObject([
    {
      metadata: { ownerReferences: [{ kind: 'Pod', name: 'sandbox-abc', uid: pod?.metadata.uid }] },
      spec: { podSelector: { matchLabels: { 'envd/sandbox': 'abc' } }, policyTypes: ['Egress'], egress },
    },
  ]);
  // The gateway may ask again.
  expect((await program.create('abc', { request })).status).toBe(200);
  expect(scene.cluster.policies).toHaveLength(1);
  await program.hook({ event: 'kill', sandboxID: 'abc' });
  expect([scene.cluster.pods, scene.cluster.policies]).toEqual([[], []]);
});

test.each([
  [{ network: { denyOut: '8.8.8.8' } }, 400, 'network.denyOut must be an array'],
  [{ network: { allowOut: ['1.1.1.1'] } }, 400, 'only has an effect beside network.denyOut'],
  [{ network: { denyOut: ['8.8.8.8'], allowOut: ['10.1.2.3'] } }, 403, "no sandbox may reach '10.1.2.3/32'"],
  [{ network: { denyOut: ['0.0.0.0/0'], allowOut: ['example.com'] } }, 501, "network.allowOut 'example.com'"],
  [{ network: { denyOut: ['2001:db8::/32'] } }, 501, 'IPv4 only'],
  [{ network: { denyOut: Array.from({ length: 101 }, () => '8.8.8.8') } }, 400, 'more than 100'],
])('%j is refused', async (request, code, text) => {
  const program = await start('--network-policies');
  const { body } = await program.create('abc', { request });
  expect(body).toEqual({ code, error: expect.stringContaining(text) });
  expect(scene.cluster.pods).toEqual([]);
});

test('without --network-policies it is 501, and what asks for nothing is done', async () => {
  const program = await start();
  const { body } = await program.create('abc', { request: { allow_internet_access: false } });
  expect(body).toEqual({ code: 501, error: expect.stringContaining('--network-policies') });
  for (const request of [{}, { allow_internet_access: true, network: { allowPublicTraffic: false } }])
    expect((await program.create('abd', { request })).body.address).toBe('10.1.2.3');
  expect(scene.cluster.pods.map(({ metadata }) => metadata.labels['envd/egress'])).toEqual([undefined]);
  expect(scene.cluster.policies).toEqual([]);
});

test('a sandbox with a policy of its own is no warm Pod, because those are in the network already', async () => {
  scene.cluster.template('base', { 'pod.yaml': POD, warm: '1' });
  const program = await start('--network-policies');
  await until('a Pod is warm', async () => (await program.metric('warm_pods{state="ready"}')) === 1);
  await program.create('abc', { request: { allow_internet_access: false } });
  expect(scene.cluster.labelled('envd/sandbox', 'abc').map(({ metadata }) => metadata.name)).toEqual([
    'sandbox-abc',
  ]);
  expect((await program.create('abd', { request: {} })).status).toBe(200);
  expect(scene.cluster.labelled('envd/sandbox', 'abd')[0]?.metadata.name).toMatch(/^warm-/);
});

test('a creation whose policy cannot be made leaves no Pod', async () => {
  const program = await start('--network-policies');
  scene.cluster.refuse = (request) => (request === 'POST networkpolicies' ? [403, 'it is forbidden'] : null);
  const { status, body } = await program.create('abc', { request: { allow_internet_access: false } });
  expect([status, body.message]).toEqual([503, 'cannot create a NetworkPolicy: it is forbidden']);
  expect(scene.cluster.pods).toEqual([]);
});

test('ranges are those of IPv4', () => {
  expect(parseRange('255.255.255.255/0')).toMatchObject({ cidr: '0.0.0.0/0' });
  expect(parseRange('10.1.2.3/9')).toMatchObject({ cidr: '10.0.0.0/9' });
  for (const text of ['', '10.0.0', '10.0.0.0/33', '10.0.0.0/8/8', '10.0.0.0/', '::1', '010.0.0.0'])
    expect([text, parseRange(text)]).toEqual([text, null]);
});

const RANGES = [
  '0.0.0.0/0',
  '0.0.0.0/1',
  '8.0.0.0/8',
  '8.0.0.0/9',
  '8.128.0.0/10',
  '10.0.0.0/7',
  '172.16.0.1',
];
const closed = CLOSED.flatMap((text) => parseRange(text) ?? []);

test.each(RANGES.flatMap((allowOut) => RANGES.map((denyOut) => [allowOut, denyOut] as const)))(
  'allowed %s, denied %s: each exception is smaller than its range, as the API server wants',
  (allowOut, denyOut) => {
    const asked = { allow_internet_access: null, network: { allowOut: [allowOut], denyOut: [denyOut] } };
    if (allowOut === '172.16.0.1') {
      expect(() => egressRules(asked, closed)).toThrow('no sandbox may reach');
      return;
    }
    const blocks = egressRules(asked, closed)?.flatMap(({ to }) => to?.[0]?.ipBlock ?? []) ?? [];
    expect(blocks.map(({ cidr }) => cidr)).toContain(allowOut);
    const bits = (cidr: string) => Number(cidr.split('/')[1]);
    for (const { cidr, except = [] } of blocks)
      expect(except.filter((each) => bits(each) <= bits(cidr))).toEqual([]);
  },
);
