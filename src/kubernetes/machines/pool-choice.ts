import { createHash } from 'node:crypto';
import type { V1Pod } from '@kubernetes/client-node';
import { REVISION } from '../pods/labels.ts';
import { isOver, labelOf } from '../pods/state.ts';
import type { Template } from '../pods/template.ts';

/**
 * Returns the Pod that a sandbox takes. Other programs choose from the same Pods: another one for each sandbox, and the same one if they
 * create the same sandbox.
 */
export function choose(free: readonly V1Pod[], sandbox: string): V1Pod | null {
  const order = ({ metadata }: V1Pod) =>
    createHash('sha256').update(`${sandbox} ${metadata?.uid}`).digest('hex');
  const [first] = free.map((pod) => ({ pod, at: order(pod) })).sort((a, b) => (a.at < b.at ? -1 : 1));
  return first?.pod ?? null;
}

/**
 * Returns whether a Pod of a pool stays.
 * @param count so many of the template are kept already
 */
export function isWanted(pod: V1Pod, template: Template | undefined, count: number): boolean {
  if (!template || isOver(pod)) return false;
  return labelOf(pod, REVISION) === template.revision && count < template.warm;
}
