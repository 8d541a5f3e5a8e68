import type { V1Pod } from '@kubernetes/client-node';
import { EnvdError, messageOf } from '../../base/errors.ts';
import type { Cluster } from '../cluster/cluster.ts';
import { claimsOf } from '../pods/claims.ts';
import { SANDBOX, TEMPLATE } from '../pods/labels.ts';
import { isOver, isWarm, labelOf } from '../pods/state.ts';

/** Returns the sandboxes that have a Pod. Throws `unavailable` while the Pods could be old. */
export function runningIn({ pods }: Pick<Cluster, 'pods'>): readonly string[] {
  if (!pods.isCurrent)
    throw new EnvdError(
      'unavailable',
      `the Pods are not known: ${messageOf(pods.failure ?? 'no answer yet')}`,
    );
  const used = pods.list().filter((pod) => !isWarm(pod) && !isOver(pod) && labelOf(pod, TEMPLATE));
  return [...new Set(used.flatMap((pod) => labelOf(pod, SANDBOX) ?? []))];
}

/**
 * Returns a line for each sandbox that has a Pod, or a disk that stays, and for each whose Pod has ended, with the reason. Throws
 * `unavailable` while the Pods could be old.
 */
export async function listLines(
  cluster: Cluster,
  reasons: ReadonlyMap<string, string>,
  keepsDisks: boolean,
): Promise<readonly string[]> {
  const running = runningIn(cluster);
  // As long as a Pod that has ended is there, a pause can still save its disk.
  const savable = new Set(keepsDisks ? cluster.pods.list().flatMap(withDisk) : []);
  const lost = [...reasons].filter(([id]) => !savable.has(id));
  // The claims are read after the Pods, because a pause keeps a claim before it removes the Pod.
  const claims = keepsDisks ? await cluster.claimsOf(null) : [];
  const disks = claims.flatMap(({ metadata }) => metadata?.labels?.[SANDBOX] ?? []);
  const ids = new Set([...running, ...disks]);
  const ended = lost.filter(([id]) => !ids.has(id));
  return [...ids, ...ended.map(([id, reason]) => `${id} ended: ${reason}`)];
}

function withDisk(pod: V1Pod): readonly string[] {
  const id = labelOf(pod, SANDBOX);
  return id !== undefined && claimsOf(pod, id).length > 0 ? [id] : [];
}
