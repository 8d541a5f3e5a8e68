import type { V1Pod } from '@kubernetes/client-node';
import type { Logger } from 'pino';
import type { Watched } from '../cluster/watched.ts';
import { SANDBOX } from '../pods/labels.ts';
import { endOf, isOver, labelOf, nameOf } from '../pods/state.ts';

/** So many reasons are known at a time, each with so many characters. */
const MOST_REASONS = 1000;
const REASON_LENGTH = 200;

/** Tells in the log, and to the gateway, why Pods of sandboxes have ended that nobody has removed: an eviction, too little memory, a node that is drained. */
export class Endings {
  readonly #logger: Logger;
  /** The uids of Pods whose end was told, by their names. */
  readonly #told = new Map<string, string | undefined>();
  readonly #reasons = new Map<string, string>();
  #count = 0;

  constructor(pods: Watched<V1Pod>, logger: Logger) {
    this.#logger = logger;
    pods.on('change', (name) => this.#look(name, pods.get(name)));
  }

  /** So many Pods of sandboxes have ended. */
  get count(): number {
    return this.#count;
  }

  /** Why Pods have ended, by their sandboxes, also when the Pods are gone. The oldest reasons are forgotten. */
  get reasons(): ReadonlyMap<string, string> {
    return this.#reasons;
  }

  #look(name: string, pod: V1Pod | undefined): void {
    if (!pod) {
      this.#told.delete(name);
      return;
    }
    const sandboxID = labelOf(pod, SANDBOX);
    const uid = pod.metadata?.uid;
    const reason = endOf(pod);
    // Another Pod has taken the place of the one that has ended, or this one was to end and goes on. Until it ends it may change often.
    if (sandboxID !== undefined && reason === null && !isOver(pod)) {
      this.#reasons.delete(sandboxID);
      this.#told.delete(name);
    }
    if (sandboxID === undefined || reason === null || this.#told.get(name) === uid) return;
    this.#told.set(name, uid);
    this.#count++;
    this.#reasons.set(sandboxID, reason.replace(/\s+/g, ' ').slice(0, REASON_LENGTH));
    const [[first = ''] = []] = this.#reasons;
    if (this.#reasons.size > MOST_REASONS) this.#reasons.delete(first);
    const { nodeName: node } = pod.spec ?? {};
    this.#logger.warn({ sandboxID, pod: nameOf(pod), node, reason }, 'the Pod of a sandbox has ended');
  }
}
