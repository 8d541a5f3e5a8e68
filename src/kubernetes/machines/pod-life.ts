import type { V1Pod } from '@kubernetes/client-node';
import { EnvdError, HttpError } from '../../base/errors.ts';
import { apiStatusOf, type Cluster } from '../cluster/cluster.ts';
import { type Egress, egressPolicy } from '../pods/egress.ts';
import { SANDBOX } from '../pods/labels.ts';
import { isOver, isReady, labelOf, nameOf, reasonOf, unscheduled } from '../pods/state.ts';

/** Makes Pods, waits until they are ready, and removes them. */
export class PodLife {
  readonly #cluster: Cluster;
  readonly #limitMs: number;

  /** @param limitMs a Pod must be ready, and gone, within this time, in ms */
  constructor(cluster: Cluster, limitMs: number) {
    this.#cluster = cluster;
    this.#limitMs = limitMs;
  }

  /** Makes the policy of a Pod. Removes the Pod, and throws, if that fails. */
  async limit(pod: V1Pod, sandbox: string, egress: Egress): Promise<void> {
    const cluster = this.#cluster;
    try {
      await cluster.limit(egressPolicy(pod, sandbox, egress));
    } catch (error) {
      await cluster.remove(pod, 'any');
      throw error;
    }
  }

  async make(pod: V1Pod): Promise<V1Pod> {
    const cluster = this.#cluster;
    try {
      return await cluster.create(pod);
    } catch (error) {
      if (error instanceof EnvdError && error.kind === 'resource_exhausted')
        throw new HttpError(429, `the quota of the cluster is used up: ${error.message}`);
      if (apiStatusOf(error) !== 409) throw error;
      // Another program makes the same sandbox, because the gateway has asked twice.
      const [other] = (await cluster.podsOf(labelOf(pod, SANDBOX) ?? '')).filter((each) => !isOver(each));
      if (other) return other;
      throw new EnvdError('unavailable', `Pod '${nameOf(pod)}' is there already, and is ending`);
    }
  }

  /** Waits for a Pod. Removes it, and throws, if it is not ready in time. */
  async ready(pod: V1Pod): Promise<V1Pod> {
    const [cluster, limitMs] = [this.#cluster, this.#limitMs];
    const name = nameOf(pod);
    let last = pod;
    let isSeen = false;
    const look = (now: V1Pod | undefined) => {
      // The watch may still have one of the same name that is gone.
      if (now?.metadata?.uid !== pod.metadata?.uid) {
        if (isSeen) throw new EnvdError('unavailable', `Pod '${name}' was deleted while it started`);
        return undefined;
      }
      if (!now) return undefined;
      isSeen = true;
      last = now;
      if (isOver(now)) throw new EnvdError('unavailable', `Pod '${name}' cannot run: ${reasonOf(now)}`);
      return isReady(now) ? now : undefined;
    };
    try {
      return await cluster.pods.until(name, AbortSignal.timeout(limitMs), look);
    } catch (error) {
      if (last.metadata?.uid !== undefined) await cluster.remove(last, 'any');
      if (error instanceof EnvdError) throw error;
      const reason = unscheduled(last);
      if (reason !== null) throw new HttpError(429, `no node has room for the sandbox: ${reason}`);
      const text = `Pod '${name}' was not ready within ${limitMs / 1000} s: ${reasonOf(last)}`;
      throw new EnvdError('unavailable', text);
    }
  }

  /** Removes Pods, and waits until they are gone. */
  async remove(pods: readonly V1Pod[]): Promise<void> {
    const [cluster, limitMs] = [this.#cluster, this.#limitMs];
    const signal = AbortSignal.timeout(limitMs);
    await Promise.all(
      pods.map(async (pod) => {
        const { uid } = pod.metadata ?? {};
        if (!(await cluster.remove(pod, 'any'))) return;
        const isGone = (now: V1Pod | undefined) =>
          cluster.pods.isCurrent && now?.metadata?.uid !== uid ? true : undefined;
        await cluster.pods.until(nameOf(pod), signal, isGone).catch(() => {
          const text = `Pod '${nameOf(pod)}' was not gone within ${limitMs / 1000} s`;
          throw new EnvdError('unavailable', text);
        });
      }),
    );
  }
}
