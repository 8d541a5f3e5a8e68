import { type Ask, agreedServer, type WitnessAnswer, withHost } from './agreement.ts';
import type { Locate } from './redis-link.ts';
import { PREFIX } from './redis-scripts.ts';

/**
 * Asks nodes of a cluster which of them has the slot of the registry, all of whose keys are in one.
 *
 * @param url of any node
 * @param nodes `HOST:PORT`; the rest of their URLs is that of `url`
 */
export function askCluster(url: string, nodes: readonly string[]): Locate {
  const urls = nodes.map((node) => {
    const { hostname, port } = new URL(`redis://${node}`);
    return withHost(url, [hostname, port]);
  });
  return agreedServer(url, { word: 'node', urls, tell: tellOwner });
}

async function tellOwner(ask: Ask, url: string): Promise<WitnessAnswer> {
  const info = String(await ask('CLUSTER', 'INFO'));
  const slot = Number(await ask('CLUSTER', 'KEYSLOT', PREFIX));
  const ranges = (await ask('CLUSTER', 'SLOTS')) as readonly Range[];
  const [, , owner] = ranges.find(([first, last]) => first <= slot && slot <= last) ?? [];
  if (!owner) throw new Error(`no node has the slot ${slot} of the registry`);
  const [host, port] = owner;
  // A node that names no host is the one that was asked.
  return { address: [host || new URL(url).hostname, String(port)], isSettled: /cluster_state:ok/.test(info) };
}

/** Of slots, and who has them: the master first. */
type Range = readonly [first: number, last: number, master: readonly [host: string | null, port: number]];
