import { isIPv4 } from 'node:net';
import type { V1NetworkPolicy, V1NetworkPolicyEgressRule, V1Pod } from '@kubernetes/client-node';
import { HttpError } from '../../base/errors.ts';
import { SANDBOX } from './labels.ts';
import { nameOf } from './state.ts';

/** A creation names at most this many addresses of each kind, because each becomes a line of a policy. */
const MOST_ADDRESSES = 100;

/** What a client asks for the network of its sandbox. */
export interface AskedNetwork {
  readonly allow_internet_access: boolean | null;
  readonly network: {
    readonly allowOut: readonly string[] | null;
    readonly denyOut: readonly string[] | null;
  } | null;
}

/** Addresses of IPv4 that have the same first bits. */
export interface Cidr {
  readonly cidr: string;
  readonly first: number;
  readonly size: number;
}

/** What a Pod may reach. */
export type Egress = readonly V1NetworkPolicyEgressRule[];

const EVERYTHING: Cidr = { cidr: '0.0.0.0/0', first: 0, size: 2 ** 32 };

/** What a resolver needs. */
const TO_DNS: V1NetworkPolicyEgressRule = {
  to: [{ namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': 'kube-system' } } }],
  ports: [
    { protocol: 'UDP', port: 53 },
    { protocol: 'TCP', port: 53 },
  ],
};

/** Returns the range of text such as `8.8.8.8` or `8.8.8.0/24`, or null. */
export function parseRange(text: string): Cidr | null {
  const [address = '', bits = '32', ...more] = text.split('/');
  if (more.length > 0 || !isIPv4(address) || !/^(\d|[12]\d|3[0-2])$/.test(bits)) return null;
  const size = 2 ** (32 - Number(bits));
  const value = address.split('.').reduce((sum, part) => sum * 256 + Number(part), 0);
  const first = value - (value % size);
  const parts = [24, 16, 8, 0].map((shift) => Math.floor(first / 2 ** shift) % 256);
  return { cidr: `${parts.join('.')}/${bits}`, first, size };
}

function isWithin(inner: Cidr, outer: Cidr): boolean {
  return inner.first >= outer.first && inner.first + inner.size <= outer.first + outer.size;
}

/**
 * Returns the rules for what a sandbox may reach, or null if its client asks for nothing. What is allowed goes before what is denied.
 * Throws an `HttpError` that the client is told.
 * @param closed no sandbox may reach these addresses, whatever its client asks for
 */
export function egressRules(
  { allow_internet_access: internet, network }: AskedNetwork,
  closed: readonly Cidr[],
): Egress | null {
  const denied = rangesOf('denyOut', network?.denyOut ?? []);
  const allowed = rangesOf('allowOut', network?.allowOut ?? []);
  if (internet === false) denied.push(EVERYTHING);
  if (denied.length === 0 && allowed.length > 0)
    throw new HttpError(400, 'network.allowOut only has an effect beside network.denyOut, such as 0.0.0.0/0');
  if (denied.length === 0) return null;
  const shut = allowed.find((range) => closed.some((each) => isWithin(range, each)));
  if (shut) throw new HttpError(403, `network.allowOut: no sandbox may reach '${shut.cidr}'`);
  const isOpen = (ranges: readonly Cidr[]) => ranges.some(({ size }) => size === EVERYTHING.size);
  const open = isOpen(denied) ? allowed : [EVERYTHING, ...allowed];
  // An allowed range is not denied, and one that is denied must lie within the range of its rule.
  const rules = open.map((range) => blockOf(range, range === EVERYTHING ? [...closed, ...denied] : closed));
  return isOpen(open) ? [TO_DNS, ...rules] : rules;
}

function rangesOf(member: 'allowOut' | 'denyOut', texts: readonly string[]): Cidr[] {
  if (texts.length > MOST_ADDRESSES)
    throw new HttpError(400, `network.${member} has more than ${MOST_ADDRESSES} addresses`);
  return texts.map((text) => {
    const range = parseRange(text);
    if (range !== null) return range;
    const wanted = 'the network of a Pod knows addresses and ranges of IPv4 only, such as 8.8.8.0/24';
    throw new HttpError(501, `network.${member} '${text.slice(0, 256)}': ${wanted}`);
  });
}

function blockOf(range: Cidr, without: readonly Cidr[]): V1NetworkPolicyEgressRule {
  const except = without.filter((each) => each.size < range.size && isWithin(each, range));
  const cidrs = except.map(({ cidr }) => cidr);
  return { to: [{ ipBlock: { cidr: range.cidr, ...(cidrs.length > 0 && { except: cidrs }) } }] };
}

/** Returns the policy of a Pod. The cluster removes it with the Pod. */
export function egressPolicy(pod: V1Pod, sandbox: string, egress: Egress): V1NetworkPolicy {
  const uid = pod.metadata?.uid ?? '';
  return {
    apiVersion: 'networking.k8s.io/v1',
    kind: 'NetworkPolicy',
    metadata: {
      name: `egress-${uid}`,
      labels: { [SANDBOX]: sandbox },
      ownerReferences: [{ apiVersion: 'v1', kind: 'Pod', name: nameOf(pod), uid }],
    },
    spec: {
      podSelector: { matchLabels: { [SANDBOX]: sandbox } },
      policyTypes: ['Egress'],
      egress: [...egress],
    },
  };
}
