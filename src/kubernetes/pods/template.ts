import { createHash } from 'node:crypto';
import { dumpYaml, loadYaml, type V1ConfigMap, type V1Container, type V1Pod } from '@kubernetes/client-node';
import { parse } from 'yaml';
import { EnvdError, messageOf } from '../../base/errors.ts';
import type { AskedNetwork } from './egress.ts';
import { EGRESS, fitsPodName, NETWORK, OWNER, REVISION, SANDBOX, STATE, TEMPLATE } from './labels.ts';
import { completeSpec, sandboxContainer } from './strict.ts';

/** A pool has at most this many Pods. */
const MOST_WARM = 1000;

/** What a ConfigMap says about the Pods of a template. */
export interface Template {
  readonly id: string;
  /** Changes with everything that a Pod is made from. */
  readonly revision: string;
  /** So many Pods are kept ready. */
  readonly warm: number;
  /** The Pod without a name, complete. */
  readonly pod: V1Pod;
  /** These members are added to `POST /init` of the daemon. */
  readonly init: object;
  /** The limits of the sandbox, or null without one. */
  readonly cpuCount: number | null;
  readonly memoryMB: number | null;
}

/** Reads a template. Throws `invalid_argument` with a sentence that says what is wrong. */
export function readTemplate({ metadata, data = {} }: V1ConfigMap, daemonImage: string): Template {
  const id = metadata?.labels?.[TEMPLATE] ?? '';
  const fault = (text: string) => new EnvdError('invalid_argument', `template '${id}': ${text}`);
  if (!fitsPodName(id)) throw fault('its name must be lower-case letters, digits and hyphens, at most 50');
  const { warm = '0', 'pod.yaml': text = '', 'init.json': init = '{}' } = data;
  if (!/^\d{1,4}$/.test(warm) || Number(warm) > MOST_WARM)
    throw fault(`warm must be a whole number up to ${MOST_WARM}, not '${warm}'`);
  const given = readPod(text, fault);
  if (!given.spec) throw fault('pod.yaml must have a spec');
  const container = sandboxContainer(given.spec);
  if (!container?.image) throw fault('pod.yaml must have a container with an image');
  if (container.command) throw fault("the command is the daemon's: name its flags as args, and no command");
  const spec = completeSpec(given.spec, daemonImage);
  const revision = createHash('sha256')
    .update(JSON.stringify([spec, given.metadata]))
    .digest('hex');
  const labels = { ...given.metadata?.labels, [TEMPLATE]: id, [REVISION]: revision.slice(0, 16) };
  const annotations = given.metadata?.annotations ?? {};
  return {
    id,
    revision: revision.slice(0, 16),
    warm: Number(warm),
    pod: { apiVersion: 'v1', kind: 'Pod', metadata: { labels, annotations }, spec },
    init: readInit(init, fault),
    ...sizeOf(container, fault),
  };
}

type Fault = (text: string) => EnvdError;

function readPod(text: string, fault: Fault): V1Pod {
  const given = readYaml(text, fault);
  const { apiVersion, kind } = given as { readonly apiVersion?: unknown; readonly kind?: unknown };
  if (apiVersion !== 'v1' || kind !== 'Pod') throw fault("pod.yaml must be 'apiVersion: v1' and 'kind: Pod'");
  try {
    const pod = loadYaml<V1Pod>(JSON.stringify(given));
    // The client leaves out what it does not know, and a mistyped limit would be no limit.
    const unknown = unknownMember(given, parse(dumpYaml(pod)), '');
    if (unknown !== null) throw new Error(`there is no '${unknown}'`);
    return pod;
  } catch (error) {
    throw fault(`pod.yaml is not a Pod: ${messageOf(error)}`);
  }
}

function readYaml(text: string, fault: Fault): object {
  try {
    const value: unknown = parse(text, { maxAliasCount: 100 });
    if (typeof value === 'object' && value !== null) return value;
  } catch (error) {
    throw fault(`pod.yaml is not YAML: ${messageOf(error)}`);
  }
  throw fault('pod.yaml is missing or is no object');
}

/** Returns the path of the first member that `known` lacks, or null. */
function unknownMember(given: unknown, known: unknown, path: string): string | null {
  if (typeof given !== 'object' || given === null) return null;
  for (const [name, value] of Object.entries(given)) {
    const where = path === '' ? name : `${path}.${name}`;
    if (value === null) continue;
    if (typeof known !== 'object' || known === null || !Object.hasOwn(known, name)) return where;
    const unknown = unknownMember(value, Reflect.get(known, name), where);
    if (unknown !== null) return unknown;
  }
  return null;
}

function readInit(text: string, fault: Fault): object {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value;
  } catch {
    // The error below names the member.
  }
  throw fault('init.json must be a JSON object');
}

const UNITS: Readonly<Record<string, number>> = {
  ...{ m: 1e-3, '': 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12 },
  ...{ Ki: 1024, Mi: 1024 ** 2, Gi: 1024 ** 3, Ti: 1024 ** 4 },
};

/** Returns the number that a quantity such as `512Mi` is. */
function quantityOf(quantity: string, fault: Fault): number {
  const [, digits = '', unit = ''] = /^(\d+(?:\.\d+)?)([a-zA-Z]{0,2})$/.exec(quantity) ?? [];
  const factor = UNITS[unit];
  if (digits === '' || factor === undefined) throw fault(`'${quantity}' is no limit such as 2 or 512Mi`);
  return Number(digits) * factor;
}

function sizeOf({ resources }: V1Container, fault: Fault) {
  const { cpu, memory } = resources?.limits ?? {};
  return {
    cpuCount: cpu === undefined ? null : Math.max(1, Math.ceil(quantityOf(cpu, fault))),
    memoryMB: memory === undefined ? null : Math.ceil(quantityOf(memory, fault) / 1024 ** 2),
  };
}

/** Returns a Pod that waits for a sandbox. */
export function warmPod({ pod, id, revision }: Template, slot: number): V1Pod {
  const labels = { ...pod.metadata?.labels, [STATE]: 'warm' };
  return {
    ...pod,
    metadata: { ...pod.metadata, name: `warm-${id}-${revision.slice(0, 8)}-${slot}`, labels },
  };
}

/** Returns the name of a Pod that is made for one sandbox. */
function nameFor(sandbox: string): string {
  return `sandbox-${sandbox}`;
}

/** Returns the Pod of a sandbox. With `network`, a policy of its own says what it may reach. */
export function sandboxPod(
  { pod }: Template,
  sandbox: string,
  owner: string | null,
  network: AskedNetwork | null,
): V1Pod {
  const { labels, annotations } = pod.metadata ?? {};
  return {
    ...pod,
    metadata: {
      name: nameFor(sandbox),
      labels: {
        ...labels,
        [STATE]: 'used',
        [SANDBOX]: sandbox,
        ...(network && { [EGRESS]: 'own' }),
      },
      annotations: {
        ...annotations,
        ...(owner !== null && { [OWNER]: owner }),
        ...(network && { [NETWORK]: JSON.stringify(network) }),
      },
    },
  };
}
