import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { readTemplate } from '../../src/kubernetes/pods/template.ts';

const FILE = fileURLToPath(new URL('../../examples/kubernetes/platform.yaml', import.meta.url));
// biome-ignore lint/suspicious/noExplicitAny: manifests are looked at member by member
const objects: readonly any[] = parseAllDocuments(readFileSync(FILE, 'utf8')).map((each) => each.toJS());
const named = (kind: string, name: string) =>
  objects.find((each) => each.kind === kind && each.metadata.name === name);
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
  const daemon = named('Deployment', 'envd-kubernetes').spec.template.spec.containers[0].args[1];
  expect(daemon).toBe(`--daemon-image=registry.example/envd:${version}`);
});
