import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import {
  ApiException,
  CoreV1Api,
  KubeConfig,
  type KubernetesObject,
  KubernetesObjectApi,
  type V1ConfigMap,
} from '@kubernetes/client-node';
import { parseAllDocuments } from 'yaml';
import { until } from '../until.ts';

/* What the cluster on this machine has of the example. */

/** Templates and Pods are there. */
export const NAMESPACE = 'sandboxes';
/** Pods have addresses of this range. */
export const POD_ADDRESSES = '10.98.0.0/16';
/** Images that `build` has made. */
export const DAEMON_IMAGE = 'registry.example/daemon:1';

const EXAMPLES = new URL('../../../examples/kubernetes/', import.meta.url);
/** The others have images that the cluster cannot pull. */
const APPLIED = ['Namespace', 'ServiceAccount', 'Role', 'RoleBinding', 'NetworkPolicy'];

/** Returns the objects of a file of `examples/kubernetes/`. */
export function readExample(name: string): readonly KubernetesObject[] {
  const text = readFileSync(fileURLToPath(new URL(name, EXAMPLES)), 'utf8');
  return parseAllDocuments(text).map((each) => each.toJS() as KubernetesObject);
}

/** How the administrator reaches the cluster. */
export function adminAccess(): KubeConfig {
  const access = new KubeConfig();
  access.loadFromFile(process.env.KUBECONFIG ?? '');
  return access;
}

/** Applies the part of the example that is no program: namespaces, the account of envd-kubernetes with its rights, policies. */
export async function applyExample(admin: KubeConfig): Promise<void> {
  const objects = KubernetesObjectApi.makeApiClient(admin);
  for (const object of readExample('platform.yaml')) {
    if (!APPLIED.includes(object.kind ?? '')) continue;
    await objects.create(object).catch((error: unknown) => {
      if (!(error instanceof ApiException) || error.code !== 409) throw error;
    });
  }
  const api = admin.makeApiClient(CoreV1Api);
  await until('the namespace has its account', () =>
    api.readNamespacedServiceAccount({ name: 'default', namespace: NAMESPACE }).catch(() => null),
  );
}

/** How envd-kubernetes reaches the cluster: with the rights of the example, and no others. */
export async function accountAccess(admin: KubeConfig): Promise<KubeConfig> {
  const { status } = await admin.makeApiClient(CoreV1Api).createNamespacedServiceAccountToken({
    name: 'envd-kubernetes',
    namespace: 'envd',
    body: { spec: { audiences: [] } },
  });
  const cluster = admin.getCurrentCluster();
  if (!cluster) throw new Error('KUBECONFIG names no cluster');
  const own = new KubeConfig();
  own.loadFromClusterAndUser(cluster, { name: 'envd-kubernetes', token: status?.token ?? '' });
  return own;
}

export function writeAccess(access: KubeConfig, file: string): string {
  writeFileSync(file, access.exportConfig(), { mode: 0o600 });
  return file;
}

/** Returns the Pod of a template whose sandboxes need these resources. */
export function podOf(resources: string): string {
  return `
apiVersion: v1
kind: Pod
spec:
  containers:
    - name: sandbox
      image: registry.example/system:1
      args: [--no-cgroups]
      resources: ${resources}
`;
}

/** Makes or changes a template. */
export async function putTemplate(admin: KubeConfig, name: string, pod: string, warm: number): Promise<void> {
  const api = admin.makeApiClient(CoreV1Api);
  const data = { 'pod.yaml': pod, warm: String(warm), 'init.json': '{"defaultUser":"user"}' };
  const body: V1ConfigMap = { metadata: { name, labels: { 'envd/template': name } }, data };
  await api
    .replaceNamespacedConfigMap({ name, namespace: NAMESPACE, body })
    .catch(() => api.createNamespacedConfigMap({ namespace: NAMESPACE, body }));
}
