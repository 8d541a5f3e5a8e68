import type { V1Pod } from '@kubernetes/client-node';
import { EnvdError, HttpError, messageOf } from '../../base/errors.ts';
import { apiStatusOf, type Cluster } from '../cluster/cluster.ts';
import { fitsPodName, SANDBOX, TEMPLATE } from '../pods/labels.ts';
import { isOver, isReady, isWarm, labelOf, nameOf, reasonOf, unscheduled } from '../pods/state.ts';
import { SANDBOX_PORT, withoutNodes } from '../pods/strict.ts';
import { sandboxPod, type Template } from '../pods/template.ts';
import type { Pools } from './pools.ts';
import type { Templates } from './templates.ts';

/** What a client wants. */
export interface Wanted {
  readonly sandbox: string;
  readonly template: string;
  readonly owner: string | null;
  /** What the owner may have; null: there is no limit. */
  readonly quota: { readonly cpu: number | null; readonly memory: number | null };
  /** No Pod may be on these nodes. */
  readonly drained: readonly string[];
}

/** The answer of a create hook. */
export interface Made {
  readonly address: string;
  readonly port: number;
  readonly host?: string;
  readonly cpuCount?: number;
  readonly memoryMB?: number;
  readonly init: object;
}

export interface MachineParts {
  readonly cluster: Cluster;
  readonly templates: Templates;
  readonly pools: Pools;
  /** A Pod must be ready, and gone, within this time, in ms. */
  readonly limitMs: number;
  /** How sandboxes are paused. */
  readonly pause: 'none' | 'freeze';
}

/** What a hook is told about a sandbox that its daemon has frozen. */
export interface Frozen {
  readonly frozen: number;
  readonly notFrozen: number;
}

/** The Pods of sandboxes. */
export class Machines {
  readonly #parts: MachineParts;
  /** A creation that is asked for a second time has the answer of the first. */
  readonly #making = new Map<string, Promise<Made>>();

  constructor(parts: MachineParts) {
    this.#parts = parts;
  }

  /** Throws an `HttpError` that the client is told, and an `EnvdError` when the cluster fails. */
  create(wanted: Wanted): Promise<Made> {
    const { sandbox } = wanted;
    const making =
      this.#making.get(sandbox) ?? this.#create(wanted).finally(() => this.#making.delete(sandbox));
    this.#making.set(sandbox, making);
    return making;
  }

  async #create({ sandbox, template: id, owner, quota, drained }: Wanted): Promise<Made> {
    const template = this.#template(id);
    checkQuota(template, quota, owner);
    if (!fitsPodName(sandbox))
      throw new HttpError(
        400,
        `'${sandbox}' cannot be the name of a Pod: use lower-case letters, digits and hyphens`,
      );
    const { cluster, pools } = this.#parts;
    const [known] = (await cluster.podsOf(sandbox)).filter((pod) => !isOver(pod));
    const pod =
      known ??
      (await pools.claim(template, sandbox, owner, drained)) ??
      (await this.#make(withoutNodes(sandboxPod(template, sandbox, owner), drained)));
    return answerOf(isReady(pod) ? pod : await this.#ready(pod), template);
  }

  #template(id: string): Template {
    const { cluster, templates } = this.#parts;
    const template = templates.find(id);
    if (template === null && !cluster.templates.isCurrent)
      throw new EnvdError('unavailable', 'the templates are not known yet: the API server does not answer');
    if (template === null) throw new HttpError(404, `template '${id}' is not known`);
    if (typeof template === 'string') throw new EnvdError('failed_precondition', template);
    return template;
  }

  async #make(pod: V1Pod): Promise<V1Pod> {
    try {
      return await this.#parts.cluster.create(pod);
    } catch (error) {
      if (error instanceof EnvdError && error.kind === 'resource_exhausted')
        throw new HttpError(429, `the quota of the cluster is used up: ${error.message}`);
      // Another program makes the same sandbox, because the gateway has asked twice.
      if (apiStatusOf(error) === 409) return pod;
      throw error;
    }
  }

  /** Waits for a Pod. Removes it, and throws, if it is not ready in time. */
  async #ready(pod: V1Pod): Promise<V1Pod> {
    const { cluster, limitMs } = this.#parts;
    const name = nameOf(pod);
    let last = pod;
    let isSeen = false;
    const look = (now: V1Pod | undefined) => {
      if (!now) {
        if (isSeen) throw new EnvdError('unavailable', `Pod '${name}' was deleted while it started`);
        return undefined;
      }
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

  /** Removes all Pods of a sandbox, and waits until they are gone. It is no failure if there is none. */
  async kill(sandbox: string): Promise<void> {
    if (!fitsPodName(sandbox)) return;
    const { cluster, limitMs } = this.#parts;
    // What is being made would come after the removal.
    await this.#making.get(sandbox)?.catch(() => {});
    const pods = await cluster.podsOf(sandbox);
    const signal = AbortSignal.timeout(limitMs);
    await Promise.all(
      pods.map(async (pod) => {
        const { uid } = pod.metadata ?? {};
        if (!(await cluster.remove(pod, 'any'))) return;
        const isGone = (now: V1Pod | undefined) => (now?.metadata?.uid === uid ? undefined : true);
        await cluster.pods.until(nameOf(pod), signal, isGone).catch(() => {
          const text = `Pod '${nameOf(pod)}' was not gone within ${limitMs / 1000} s`;
          throw new EnvdError('unavailable', text);
        });
      }),
    );
  }

  /**
   * Says whether a sandbox is paused by what its daemon has frozen. Throws `unimplemented` if Pods of this program cannot be paused, or
   * if this one could not be frozen.
   */
  pause(sandbox: string, freeze: Frozen | null): void {
    if (this.#parts.pause === 'none')
      throw new EnvdError(
        'unimplemented',
        'a Pod cannot be paused with its memory: --pause freeze keeps its processes frozen where the daemon may',
      );
    if (freeze === null || freeze.notFrozen > 0)
      throw new EnvdError(
        'unimplemented',
        `sandbox '${sandbox}' is not frozen: its container may not write its cgroup`,
      );
  }

  /** Says that a sandbox can be thawed. Throws `not_found` if its Pod is gone. */
  async resume(sandbox: string): Promise<void> {
    const pods = fitsPodName(sandbox) ? await this.#parts.cluster.podsOf(sandbox) : [];
    if (pods.some(isReady)) return;
    const [pod] = pods;
    const reason = pod === undefined ? 'it has no Pod' : reasonOf(pod);
    throw new EnvdError('not_found', `sandbox '${sandbox}' cannot be resumed: ${reason}`);
  }

  /** Returns the sandboxes that have a Pod. Throws `unavailable` while the list could be old. */
  list(): readonly string[] {
    const { pods } = this.#parts.cluster;
    if (!pods.isCurrent)
      throw new EnvdError(
        'unavailable',
        `the Pods are not known: ${messageOf(pods.failure ?? 'no answer yet')}`,
      );
    const used = pods.list().filter((pod) => !isWarm(pod) && !isOver(pod) && labelOf(pod, TEMPLATE));
    return [...new Set(used.flatMap((pod) => labelOf(pod, SANDBOX) ?? []))];
  }
}

function checkQuota(
  { id, cpuCount, memoryMB }: Template,
  quota: Wanted['quota'],
  owner: string | null,
): void {
  const limits = [
    ['processors', cpuCount, quota.cpu],
    ['MiB of memory', memoryMB, quota.memory],
  ] as const;
  for (const [unit, size, most] of limits) {
    if (most === null || (size !== null && size <= most)) continue;
    const has = size === null ? `no limit of ${unit}` : `${size} ${unit}`;
    throw new HttpError(403, `template '${id}' has ${has}, and '${owner ?? ''}' may have ${most}`);
  }
}

function answerOf({ status, spec }: V1Pod, { cpuCount, memoryMB, init }: Template): Made {
  return {
    address: status?.podIP ?? '',
    port: SANDBOX_PORT,
    ...(spec?.nodeName !== undefined && { host: spec.nodeName }),
    ...(cpuCount !== null && { cpuCount }),
    ...(memoryMB !== null && { memoryMB }),
    init,
  };
}
