import { readFileSync } from 'node:fs';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { expect, test } from 'vitest';
import { parse, parseAllDocuments } from 'yaml';
import { readGatewayConfig } from '../../src/gateway/config/config.ts';
import { readKubernetesConfig } from '../../src/kubernetes/config/config.ts';
import { EGRESS } from '../../src/kubernetes/pods/labels.ts';
import { readTemplate } from '../../src/kubernetes/pods/template.ts';
import { HOOK_SECRET } from '../support/programs/kubernetes.ts';

const FILE = fileURLToPath(new URL('../../examples/kubernetes/platform.yaml', import.meta.url));
// biome-ignore lint/suspicious/noExplicitAny: manifests are looked at member by member
const objects: readonly any[] = parseAllDocuments(readFileSync(FILE, 'utf8')).map((each) => each.toJS());
const named = (kind: string, name: string) =>
  objects.find((each) => each.kind === kind && each.metadata.name === name);
const containerOf = (name: string) => named('Deployment', name).spec.template.spec.containers[0];
const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'));

test('the template of the example can be used, and its Pod is as strict as its namespace wants', () => {
  const template = readTemplate(named('ConfigMap', 'base'), 'registry.example/envd');
  expect(template).toMatchObject({ id: 'base', warm: 2, cpuCount: 2, memoryMB: 1024 });
  const { securityContext, initContainers = [], containers = [] } = template.pod.spec ?? {};
  expect(securityContext).toMatchObject({ runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } });
  for (const container of [...initContainers, ...containers])
    expect(container.securityContext).toMatchObject({
      allowPrivilegeEscalation: false,
      capabilities: { drop: ['ALL'] },
    });
  // Empty directories are on the disk of the node, which other sandboxes need, too.
  expect(Object.keys(containers[0]?.resources?.limits ?? {})).toEqual(['cpu', 'memory', 'ephemeral-storage']);
});

test('envd-kubernetes takes hooks until the Service sends none to it, and then has the time of a Pod', () => {
  const { terminationGracePeriodSeconds: seconds } = named('Deployment', 'envd-kubernetes').spec.template
    .spec;
  const [command, waits] = containerOf('envd-kubernetes').lifecycle?.preStop.exec.command ?? [];
  const flags = readKubernetesConfig(['--hook-secret', HOOK_SECRET, '--daemon-image=x'], {});
  if (!('run' in flags)) throw new Error(flags.output);
  expect(command).toBe('sleep');
  expect(seconds).toBeGreaterThan(Number(waits) + flags.run.podTimeout + 5);
});

test('docs/kubernetes.md lists what the account may do, as the role says it', () => {
  const text = readFileSync(new URL('../../docs/kubernetes.md', import.meta.url), 'utf8');
  const rows = Array.from(
    text.matchAll(/^ {2}\| `([a-z0-9.]+)` +\| ((?:`[a-z]+`,? ?)+) *\|$/gm),
    ([, resource, verbs = '']) => `${resource}: ${verbs.match(/[a-z]+/g)}`,
  );
  type Rule = { readonly apiGroups: string[]; readonly resources: string[]; readonly verbs: string[] };
  const rules = named('Role', 'envd-kubernetes').rules.map(
    ({ apiGroups, resources, verbs }: Rule) =>
      `${[...resources, ...apiGroups].filter(Boolean).join('.')}: ${verbs}`,
  );
  expect(rows).toEqual(rules);
});

test('every sandbox is closed but for the gateway, and those without a policy of their own are open to the internet', () => {
  const [closed, internet] = ['sandboxes', 'internet'].map((name) => named('NetworkPolicy', name).spec);
  expect(closed).toMatchObject({ podSelector: {}, policyTypes: ['Ingress', 'Egress'] });
  expect(closed.egress).toBeUndefined();
  expect(closed.ingress[0].from).toHaveLength(1);
  expect(internet.podSelector.matchExpressions).toEqual([{ key: EGRESS, operator: 'DoesNotExist' }]);
  const flags = readKubernetesConfig(['--hook-secret', HOOK_SECRET, '--daemon-image=x'], {});
  if (!('run' in flags)) throw new Error(flags.output);
  expect(internet.egress[1].to[0].ipBlock.except).toEqual(flags.run.closedAddresses.map(({ cidr }) => cidr));
});

test('the images of the example are of this version, and the programs of it are strict, too', () => {
  const pods = objects.filter(({ kind }) => kind === 'Deployment' || kind === 'StatefulSet');
  expect(pods).toHaveLength(3);
  for (const { spec } of pods.map(({ spec: { template } }) => template)) {
    expect(spec.securityContext.runAsNonRoot).toBe(true);
    for (const { image, securityContext } of spec.containers) {
      if (image.startsWith('registry.example/')) expect(image).toMatch(new RegExp(`:${version}$`));
      expect(securityContext).toMatchObject({
        readOnlyRootFilesystem: true,
        capabilities: { drop: ['ALL'] },
      });
    }
  }
  const daemon = { name: 'ENVD_KUBERNETES_DAEMON_IMAGE', value: `registry.example/envd:${version}` };
  expect(containerOf('envd-kubernetes').env).toContainEqual(daemon);
});

/** The container of a patch, and the one that it changes. */
function patched(patch: string) {
  const { metadata, spec } = parse(patch);
  return [spec.template.spec.containers[0], containerOf(metadata.name), metadata.namespace];
}

const values = readFileSync(new URL('kustomization.yaml', pathToFileURL(FILE)), 'utf8');

test('the values of the kustomization are those of the example', () => {
  const { resources, images, replicas, patches } = parse(values);
  expect(resources).toEqual(['platform.yaml']);
  for (const { name, newName } of images) {
    expect(newName).toBe(name);
    expect(containerOf(name.split('/')[1]).image).toBe(`${name}:${version}`);
  }
  for (const { name, count } of replicas) expect(named('Deployment', name).spec.replicas).toBe(count);
  for (const { patch } of patches) {
    const [{ name, env }, has, namespace] = patched(patch);
    expect([name, namespace]).toEqual([has.name, 'envd']);
    expect(has.env).toEqual(expect.arrayContaining(env));
  }
});

test('all values of the kustomization are settings, also those that it only proposes', () => {
  const help = (read: object) => ('output' in read ? read.output : '');
  const helps: Readonly<Record<string, unknown>> = {
    'envd-gateway': help(readGatewayConfig(['--help'], {})),
    'envd-kubernetes': help(readKubernetesConfig(['--help'], {})),
  };
  const { patches } = parse(values.replaceAll('# - {name: ', '- {name: '));
  const set: readonly string[] = patches.flatMap(({ patch }: { readonly patch: string }) => {
    const [{ name, env }] = patched(patch);
    for (const each of env) expect(helps[name]).toContain(`(${each.name})`);
    return env.map((each: { readonly name: string }) => each.name);
  });
  expect(set).toHaveLength(7);
});
