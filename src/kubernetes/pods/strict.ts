import type { V1Container, V1Pod, V1PodSpec, V1Volume } from '@kubernetes/client-node';

export const SANDBOX_PORT = 49983;

/** The daemon is copied into this volume, and started from there. */
const TOOLS = { name: 'envd-tools', mountPath: '/tools' } as const;

const STRICT_CONTAINER = {
  allowPrivilegeEscalation: false,
  readOnlyRootFilesystem: true,
  capabilities: { drop: ['ALL'] },
};

const STRICT_POD = {
  runAsNonRoot: true,
  runAsUser: 1000,
  runAsGroup: 1000,
  fsGroup: 1000,
  seccompProfile: { type: 'RuntimeDefault' },
};

/** A program on a read-only root needs these directories to write into. */
const WRITABLE = { run: '/run', tmp: '/tmp' } as const;

/** Returns the container in which the daemon runs: the one with the name `sandbox`, else the first. */
export function sandboxContainer({ containers }: Pick<V1PodSpec, 'containers'>): V1Container | undefined {
  return containers.find(({ name }) => name === 'sandbox') ?? containers[0];
}

/**
 * Adds what every sandbox needs to the specification of a template: the daemon, its probe, and strict rights wherever the template says
 * nothing else.
 */
export function completeSpec(spec: V1PodSpec, daemonImage: string): V1PodSpec {
  const sandbox = sandboxContainer(spec);
  const containers = spec.containers.map((each) => (each === sandbox ? sandboxOf(each) : strict(each)));
  return {
    restartPolicy: 'Never',
    automountServiceAccountToken: false,
    enableServiceLinks: false,
    terminationGracePeriodSeconds: 5,
    ...spec,
    securityContext: { ...STRICT_POD, ...spec.securityContext },
    initContainers: [copyDaemon(daemonImage), ...(spec.initContainers ?? []).map(strict)],
    containers,
    volumes: [...(spec.volumes ?? []), { name: TOOLS.name, emptyDir: {} }, ...writableVolumes(sandbox)],
  };
}

function strict<T extends V1Container>(container: T): T {
  return { ...container, securityContext: { ...STRICT_CONTAINER, ...container.securityContext } };
}

function copyDaemon(image: string): V1Container {
  return {
    name: 'envd',
    image,
    args: [TOOLS.mountPath],
    volumeMounts: [{ ...TOOLS }],
    securityContext: STRICT_CONTAINER,
  };
}

function sandboxOf(container: V1Container): V1Container {
  const { name, mountPath } = TOOLS;
  const mounts = writableVolumes(container).map((each) => ({ name: each.name, mountPath: pathOf(each) }));
  return {
    readinessProbe: { httpGet: { path: '/health', port: SANDBOX_PORT }, periodSeconds: 1 },
    ...strict(container),
    // The daemon is closed until the gateway gives it a token.
    command: [`${mountPath}/envd/bin/envd-supervise`, '--require-token'],
    ports: [...(container.ports ?? []), { name: 'envd', containerPort: SANDBOX_PORT }],
    volumeMounts: [...(container.volumeMounts ?? []), { name, mountPath, readOnly: true }, ...mounts],
  };
}

/** The volumes that a read-only root needs where the template has none. */
function writableVolumes(container: V1Container | undefined): V1Volume[] {
  if (container?.securityContext?.readOnlyRootFilesystem === false) return [];
  const taken = (container?.volumeMounts ?? []).map(({ mountPath }) => mountPath);
  return Object.entries(WRITABLE).flatMap(([name, path]) =>
    taken.includes(path) ? [] : [{ name: `envd-${name}`, emptyDir: {} }],
  );
}

function pathOf({ name }: V1Volume): string {
  return name === 'envd-run' ? WRITABLE.run : WRITABLE.tmp;
}

/** A node can have these names. The API server refuses a Pod that names any other (RFC 1123, section 2.1). */
const NODE_NAME = /^(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;

/** Returns a Pod that the scheduler keeps from these hosts, as far as they are nodes. */
export function withoutNodes(pod: V1Pod, hosts: readonly string[]): V1Pod {
  const spec = pod.spec;
  // The API server takes one name in each requirement.
  const avoid = hosts
    .filter((host) => NODE_NAME.test(host))
    .map((host) => ({ key: 'metadata.name', operator: 'NotIn', values: [host] }));
  if (avoid.length === 0 || !spec) return pod;
  const node = spec.affinity?.nodeAffinity;
  const terms = node?.requiredDuringSchedulingIgnoredDuringExecution?.nodeSelectorTerms ?? [{}];
  const required = {
    nodeSelectorTerms: terms.map((term) => ({
      ...term,
      matchFields: [...(term.matchFields ?? []), ...avoid],
    })),
  };
  const nodeAffinity = { ...node, requiredDuringSchedulingIgnoredDuringExecution: required };
  return { ...pod, spec: { ...spec, affinity: { ...spec.affinity, nodeAffinity } } };
}
