import type { V1Pod } from '@kubernetes/client-node';
import { monotonicMs } from '../../base/monotonic.ts';
import { REVISION } from '../pods/labels.ts';
import { isOver, labelOf } from '../pods/state.ts';
import type { Template } from '../pods/template.ts';

/** A Pod that a program of another version keeps is removed after this time, in ms: an update has ended by then. */
const OTHERS_MS = 60_000;

/**
 * Knows which Pods of pools a program of another version keeps, because they came after this one had read their template. Two programs
 * that removed the Pods of each other would make and remove them in a loop, for as long as an update lasts.
 */
export class Versions {
  /** The versions of templates that this program makes Pods from. */
  readonly #revisions = new Map<string, string>();
  /** Since when programs of other versions keep their Pods, by the uids of the Pods. */
  readonly #since = new Map<string, number>();

  isOthers(pod: V1Pod, template: Template | undefined): boolean {
    if (!template || isOver(pod) || labelOf(pod, REVISION) === template.revision) return false;
    const uid = pod.metadata?.uid ?? '';
    const now = monotonicMs();
    const isNews = this.#revisions.get(template.id) !== template.revision;
    const since = this.#since.get(uid) ?? (isNews ? now - OTHERS_MS : now);
    this.#since.set(uid, since);
    return now - since < OTHERS_MS;
  }

  /** Must be called when the Pods were compared with these templates. */
  learn(templates: readonly Template[], pods: readonly V1Pod[]): void {
    for (const { id, revision } of templates) this.#revisions.set(id, revision);
    const uids = new Set(pods.map(({ metadata }) => metadata?.uid ?? ''));
    for (const uid of this.#since.keys()) if (!uids.has(uid)) this.#since.delete(uid);
  }
}
