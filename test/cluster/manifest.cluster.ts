import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { request } from 'node:https';
import { join } from 'node:path';
import { json } from 'node:stream/consumers';
import {
  AuthorizationV1Api,
  type KubernetesObject,
  type V1ConfigMap,
  type V1Role,
} from '@kubernetes/client-node';
import { beforeAll, expect, test } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { withoutNodes } from '../../src/kubernetes/pods/strict.ts';
import { readTemplate } from '../../src/kubernetes/pods/template.ts';
import {
  accountAccess,
  adminAccess,
  applyExample,
  NAMESPACE,
  readExample,
} from '../support/servers/cluster-objects.ts';

/* The example, as a real API server takes it: strictly, and with the admission of Pods in its namespace. */

const admin = adminAccess();
const platform = readExample('platform.yaml');

beforeAll(() => applyExample(admin));

/** Has the server check an object and do nothing. A member that it does not know is refused, too. */
async function check(
  object: KubernetesObject,
): Promise<{ readonly status: number; readonly message: string }> {
  const { apiVersion = '', kind = '', metadata } = object;
  const name = `${metadata?.name ?? 'template'}-checked`;
  const group = apiVersion.includes('/') ? 'apis' : 'api';
  const scope = kind === 'Namespace' ? '' : `namespaces/${metadata?.namespace ?? NAMESPACE}/`;
  const kinds = `${kind.toLowerCase().replace(/y$/, 'ie')}s`;
  const url = `${admin.getCurrentCluster()?.server}/${group}/${apiVersion}/${scope}${kinds}?dryRun=All&fieldValidation=Strict`;
  const headers = {
    authorization: `Bearer ${admin.getCurrentUser()?.token}`,
    'content-type': 'application/json',
  };
  const { promise, resolve, reject } = Promise.withResolvers<{ status: number; message: string }>();
  request(url, { method: 'POST', headers, rejectUnauthorized: false }, (response) => {
    json(response).then((body) => {
      const message = String((body as { readonly message?: unknown }).message ?? '');
      resolve({ status: response.statusCode ?? 0, message });
    }, reject);
  })
    .on('error', reject)
    .end(JSON.stringify({ ...object, metadata: { ...metadata, name } }));
  return promise;
}

const examples = [...platform, ...readExample('pod.yaml')];

test.each(examples.map((each) => [`${each.kind} ${each.metadata?.name}`, each] as const))(
  '%s is accepted',
  async (_name, object) => {
    expect(await check(object)).toEqual({ status: 201, message: '' });
  },
);

test('a Pod of the template of the example is accepted, in a namespace that enforces strict Pods', async () => {
  const map = platform.find(({ kind }) => kind === 'ConfigMap') as V1ConfigMap;
  const { pod } = readTemplate(map, 'registry.example/envd');
  expect(await check(pod)).toEqual({ status: 201, message: '' });
  expect(await check(withoutNodes(pod, ['node-1', 'node-2', 'No node']))).toEqual({
    status: 201,
    message: '',
  });
  const rights = { ...pod, spec: { ...pod.spec, hostNetwork: true } } as KubernetesObject;
  expect(await check(rights)).toMatchObject({ status: 403, message: expect.stringContaining('restricted') });
});

const EXAMPLES = join(import.meta.dirname, '../../examples/kubernetes');
const kubectl = (...args: readonly string[]) => execFileSync('kubectl', args, { encoding: 'utf8' });

test('the kustomization changes nothing as it is, and the server takes what it makes', () => {
  const made = parseAllDocuments(kubectl('kustomize', EXAMPLES)).map(
    (each) => each.toJS() as KubernetesObject,
  );
  const key = ({ kind, metadata }: KubernetesObject) => `${kind} ${metadata?.namespace} ${metadata?.name}`;
  const sorted = (objects: readonly KubernetesObject[]) =>
    [...objects].sort((a, b) => (key(a) < key(b) ? -1 : 1));
  const given = parseAllDocuments(readFileSync(join(EXAMPLES, 'platform.yaml'), 'utf8'));
  expect(sorted(made)).toEqual(sorted(given.map((each) => each.toJS() as KubernetesObject)));
  const applied = kubectl('apply', '--dry-run=server', '-k', EXAMPLES).trim().split('\n');
  expect(applied).toHaveLength(given.length);
  for (const line of applied) expect(line).toMatch(/ (created|configured|unchanged) \(server dry run\)$/);
});

test('what is mistyped is refused, so the check can fail', async () => {
  const role = platform.find(({ kind }) => kind === 'Role');
  const mistyped = { ...role, rule: [] } as KubernetesObject;
  expect(await check(mistyped)).toMatchObject({
    status: 400,
    message: expect.stringContaining('unknown field "rule"'),
  });
});

test('the account of envd-kubernetes may do what its role says, and nothing elsewhere', async () => {
  const reviews = (await accountAccess(admin)).makeApiClient(AuthorizationV1Api);
  const rulesIn = async (namespace: string) => {
    const { status } = await reviews.createSelfSubjectRulesReview({ body: { spec: { namespace } } });
    // Every account may ask who it is, and what it may do.
    const own = ['authorization.k8s.io', 'authentication.k8s.io'];
    const rules = (status?.resourceRules ?? []).filter(
      ({ apiGroups = [] }) => !own.includes(apiGroups[0] ?? ''),
    );
    return rules.flatMap(({ apiGroups = [], resources = [], verbs }) =>
      resources.map((resource) => `${apiGroups} ${resource}: ${[...verbs].sort()}`),
    );
  };
  const { rules = [] } = platform.find(({ kind }) => kind === 'Role') as V1Role;
  const wanted = rules.flatMap(({ apiGroups = [], resources = [], verbs }) =>
    resources.map((resource) => `${apiGroups} ${resource}: ${[...verbs].sort()}`),
  );
  expect((await rulesIn(NAMESPACE)).sort()).toEqual(wanted.sort());
  for (const other of ['envd', 'default', 'kube-system']) expect(await rulesIn(other)).toEqual([]);
});
