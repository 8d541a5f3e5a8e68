import { type Ask, agreedServer, type WitnessAnswer, withHost } from './agreement.ts';
import type { Locate } from './redis-link.ts';
import { PREFIX } from './redis-scripts.ts';

/**
 * Returns a function that asks nodes of a cluster which of them has the slot of the registry. All keys of the registry are in
 * one slot.
 *
 * @param url the URL of any node
 * @param nodes `HOST:PORT` of each node; the rest of their URLs comes from `url`
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
  if (!owner) throw new Error(`no node of the cluster has slot ${slot}, where the registry is`);
  const [host, port] = owner;
  // If the owner has no host name, it is the node that was asked.
  return { address: [host || new URL(url).hostname, String(port)], isSettled: /cluster_state:ok/.test(info) };
}

/** A range of slots, and the nodes that have it. The master comes first. */
type Range = readonly [first: number, last: number, master: readonly [host: string | null, port: number]];
