import type { V1Pod } from '@kubernetes/client-node';
import { SANDBOX, STATE } from './labels.ts';
import { sandboxContainer } from './strict.ts';

/** Returns the value of a label of a Pod. */
export function labelOf({ metadata }: V1Pod, name: string): string | undefined {
  return metadata?.labels?.[name];
}

export function nameOf({ metadata }: V1Pod): string {
  return metadata?.name ?? '';
}

/** Whether the Pod is being deleted. */
function isLeaving({ metadata }: V1Pod): boolean {
  return metadata?.deletionTimestamp !== undefined;
}

/** Returns how the container of the daemon has ended, if it is not started again. Other containers of the Pod may go on. */
function endOfDaemon({ spec, status }: V1Pod) {
  const container = spec && sandboxContainer(spec);
  const states = status?.containerStatuses ?? [];
  const ended = states.find(({ name }) => name === container?.name)?.state?.terminated;
  return (container?.restartPolicy ?? spec?.restartPolicy) === 'Never' ? ended : undefined;
}

function hasEnded(pod: V1Pod): boolean {
  const { phase } = pod.status ?? {};
  return phase === 'Failed' || phase === 'Succeeded' || endOfDaemon(pod) !== undefined;
}

/** Whether the Pod has ended or will not run again. */
export function isOver(pod: V1Pod): boolean {
  return isLeaving(pod) || hasEnded(pod);
}

/** Whether the daemon of the Pod answers. */
export function isReady(pod: V1Pod): boolean {
  return !isOver(pod) && Boolean(pod.status?.podIP) && condition(pod, 'Ready')?.status === 'True';
}

/** Whether the Pod waits for a sandbox. */
export function isWarm(pod: V1Pod): boolean {
  return labelOf(pod, STATE) === 'warm';
}

/** Whether a sandbox has taken the Pod from a pool, and it runs. */
export function isTaken(pod: V1Pod): boolean {
  return labelOf(pod, STATE) === 'used' && nameOf(pod).startsWith('warm-') && !isOver(pod);
}

/**
 * Returns the addresses of Pods of sandboxes that have ended. The cluster may give them to others, although the gateway still sends
 * requests for the sandboxes there, as long as their Pods are not removed.
 */
export function formerAddresses(pods: readonly V1Pod[]): ReadonlySet<string> {
  const ended = pods.filter((pod) => labelOf(pod, SANDBOX) !== undefined && hasEnded(pod));
  return new Set(ended.flatMap(({ status }) => status?.podIP ?? []));
}

function condition({ status }: V1Pod, type: string) {
  return status?.conditions?.find((each) => each.type === type);
}

/** Returns the scheduler's own words if it has found no node for the Pod, or null. */
export function unscheduled(pod: V1Pod): string | null {
  const scheduled = condition(pod, 'PodScheduled');
  if (scheduled?.status !== 'False') return null;
  return scheduled.message ?? scheduled.reason ?? 'the scheduler gave no reason';
}

/** Returns why a Pod has ended although nobody has removed it, or why the cluster removes it; else null. */
export function endOf(pod: V1Pod): string | null {
  const { reason, message } = pod.status ?? {};
  // An eviction, a drain of its node, and a Pod of a higher priority are told so.
  const disruption = condition(pod, 'DisruptionTarget');
  if (disruption?.status === 'True') return told(disruption.reason, disruption.message);
  if (isLeaving(pod) || !hasEnded(pod)) return null;
  return reason === undefined ? reasonOf(pod) : told(reason, message);
}

function told(...parts: readonly (string | undefined)[]): string {
  return parts.filter(Boolean).join(': ');
}

/** Returns what the cluster says about a Pod that is not ready. */
export function reasonOf(pod: V1Pod): string {
  const { status, metadata } = pod;
  if (metadata?.deletionTimestamp !== undefined) return 'the Pod is being deleted';
  const containers = [...(status?.initContainerStatuses ?? []), ...(status?.containerStatuses ?? [])];
  const end = endOfDaemon(pod);
  for (const { name, state } of containers) {
    const { waiting, terminated } = state ?? {};
    const last = waiting ?? (terminated?.exitCode === 0 && terminated !== end ? undefined : terminated);
    if (last?.reason === undefined || last.reason === 'PodInitializing') continue;
    return told(`container '${name}': ${last.reason}`, last.message);
  }
  return unscheduled(pod) ?? status?.message ?? status?.reason ?? `the Pod is ${status?.phase ?? 'unknown'}`;
}
