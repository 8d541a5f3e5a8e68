import type { V1Pod } from '@kubernetes/client-node';
import { EnvdError, HttpError } from '../../base/errors.ts';
import type { Cluster } from '../cluster/cluster.ts';
import { claimsOf, withClaims } from '../pods/claims.ts';
import { type AskedNetwork, type Cidr, type Egress, egressRules } from '../pods/egress.ts';
import { fitsPodName, NETWORK, OWNER, TEMPLATE } from '../pods/labels.ts';
import { formerAddresses, isOver, isReady, reasonOf } from '../pods/state.ts';
import { SANDBOX_PORT, withoutNodes } from '../pods/strict.ts';
import { sandboxPod, type Template } from '../pods/template.ts';
import type { Endings } from './endings.ts';
import { listLines } from './listing.ts';
import { PodLife } from './pod-life.ts';
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
  /** What its client asks for its network. */
  readonly network: AskedNetwork | null;
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
  readonly endings: Pick<Endings, 'reasons'>;
  /** A Pod must be ready, and gone, within this time, in ms. */
  readonly limitMs: number;
  readonly pause: readonly PauseWay[];
  /** A sandbox with a policy of its own reaches none of these; null: the network of the cluster enforces no policies. */
  readonly closed: readonly Cidr[] | null;
}

/** How sandboxes can be paused: their processes stay, frozen by the daemon; or only their volumes stay, without a Pod. */
export const PAUSE_WAYS = ['freeze', 'disk'] as const;
export type PauseWay = (typeof PAUSE_WAYS)[number];

/** What a hook is told about a sandbox that is to be paused. */
export interface PauseRequest {
  /** What its daemon has frozen, if it was asked to, and could. */
  readonly freeze: { readonly frozen: number; readonly notFrozen: number } | null;
  readonly memory: boolean;
}

/** The Pods of sandboxes. */
export class Machines {
  readonly #parts: MachineParts;
  readonly #life: PodLife;
  /** A creation that is asked for a second time has the answer of the first. */
  readonly #making = new Map<string, Promise<Made>>();

  constructor(parts: MachineParts) {
    this.#parts = parts;
    this.#life = new PodLife(parts.cluster, parts.limitMs);
  }

  /** Throws an `HttpError` that the client is told, and an `EnvdError` when the cluster fails. */
  create(wanted: Wanted): Promise<Made> {
    return this.#once(wanted.sandbox, () => this.#create(wanted));
  }

  #once(sandbox: string, make: () => Promise<Made>): Promise<Made> {
    const making = this.#making.get(sandbox) ?? make().finally(() => this.#making.delete(sandbox));
    this.#making.set(sandbox, making);
    return making;
  }

  async #create({ sandbox, template: id, owner, quota, drained, network }: Wanted): Promise<Made> {
    const template = this.#template(id);
    const egress = this.#egressOf(network);
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
      // A warm Pod is in the network already, and a policy counts some time after it was made.
      (egress ? null : await pools.claim(template, sandbox, owner, drained)) ??
      (await this.#life.make(withoutNodes(sandboxPod(template, sandbox, owner, egress && network), drained)));
    return this.#finish(pod, sandbox, template, egress);
  }

  async #finish(pod: V1Pod, sandbox: string, template: Template, egress: Egress | null): Promise<Made> {
    if (egress) await this.#life.limit(pod, sandbox, egress);
    const ready = isReady(pod) ? pod : await this.#life.ready(pod);
    const { cluster } = this.#parts;
    const { podIP = '' } = ready.status ?? {};
    if (!formerAddresses(cluster.pods.list()).has(podIP)) return answerOf(ready, template);
    await cluster.remove(ready, 'any');
    throw new EnvdError('unavailable', `requests for a sandbox that has ended still go to '${podIP}'`);
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

  /** Returns what the sandbox may reach, or null if that is what all may. Throws an `HttpError`. */
  #egressOf(network: AskedNetwork | null): Egress | null {
    const { closed } = this.#parts;
    const rules = network && egressRules(network, closed ?? []);
    if (!rules || closed) return rules;
    throw new HttpError(
      501,
      'the network of a sandbox cannot be limited here: --network-policies of envd-kubernetes says where policies are enforced',
    );
  }

  /** Removes all Pods of a sandbox, and the disks that it has kept, and waits until the Pods are gone. It is no failure if there is none. */
  async kill(sandbox: string): Promise<void> {
    if (!fitsPodName(sandbox)) return;
    const { cluster, pause } = this.#parts;
    // What is being made would come after the removal.
    await this.#making.get(sandbox)?.catch(() => {});
    await this.#life.remove(await cluster.podsOf(sandbox));
    if (!pause.includes('disk')) return;
    for (const claim of await cluster.claimsOf(sandbox)) await cluster.removeClaim(claim);
  }

  /**
   * Pauses a sandbox, or says whether it is paused by what its daemon has frozen. Throws `unimplemented` if Pods of this program cannot
   * be paused so, or if this one could not.
   */
  async pause(sandbox: string, { freeze, memory }: PauseRequest): Promise<void> {
    const way = memory ? 'freeze' : 'disk';
    if (!this.#parts.pause.includes(way)) throw new EnvdError('unimplemented', NOT_PAUSED[way]);
    if (!memory) return this.#keepDisk(sandbox);
    if (freeze === null || freeze.notFrozen > 0)
      throw new EnvdError(
        'unimplemented',
        `sandbox '${sandbox}' is not frozen: its container may not write its cgroup`,
      );
  }

  /** Removes the Pod of a sandbox, but not its disk. */
  async #keepDisk(sandbox: string): Promise<void> {
    const { cluster } = this.#parts;
    const pods = fitsPodName(sandbox) ? await cluster.podsOf(sandbox) : [];
    const claims = pods.flatMap((pod) => claimsOf(pod, sandbox));
    for (const claim of claims)
      if (!(await cluster.keep(claim)))
        throw new EnvdError('not_found', `the disk of sandbox '${sandbox}' is gone: claim '${claim.name}'`);
    if (claims.length === 0 && (await cluster.claimsOf(sandbox)).length === 0)
      throw pods.length === 0
        ? new EnvdError('not_found', `sandbox '${sandbox}' has no Pod`)
        : new EnvdError(
            'unimplemented',
            `sandbox '${sandbox}' has no disk that could stay: its template needs an ephemeral volume`,
          );
    await this.#life.remove(pods);
  }

  /** Makes a Pod for a sandbox that has only its disk. Throws what `create` throws, and `not_found` if the disk is gone. */
  restore(sandbox: string, drained: readonly string[]): Promise<Made> {
    return this.#once(sandbox, () => this.#restore(sandbox, drained));
  }

  async #restore(sandbox: string, drained: readonly string[]): Promise<Made> {
    const { cluster } = this.#parts;
    const claims = fitsPodName(sandbox) ? await cluster.claimsOf(sandbox) : [];
    const { labels = {}, annotations = {} } = claims[0]?.metadata ?? {};
    if (claims.length === 0)
      throw new EnvdError('not_found', `sandbox '${sandbox}' cannot be resumed: its disk is gone`);
    const template = this.#template(labels[TEMPLATE] ?? '');
    const network =
      annotations[NETWORK] === undefined ? null : (JSON.parse(annotations[NETWORK]) as AskedNetwork);
    const egress = this.#egressOf(network);
    const wanted = withClaims(
      sandboxPod(template, sandbox, annotations[OWNER] ?? null, egress && network),
      claims,
    );
    if (typeof wanted === 'string')
      throw new EnvdError(
        'failed_precondition',
        `template '${template.id}' has no ephemeral volume '${wanted}'`,
      );
    const [known] = (await cluster.podsOf(sandbox)).filter((pod) => !isOver(pod));
    const pod = known ?? (await this.#life.make(withoutNodes(wanted, drained)));
    return this.#finish(pod, sandbox, template, egress);
  }

  /** Says that a sandbox can be thawed. Throws `not_found` if its Pod is gone. */
  async resume(sandbox: string): Promise<void> {
    const pods = fitsPodName(sandbox) ? await this.#parts.cluster.podsOf(sandbox) : [];
    if (pods.some(isReady)) return;
    const [pod] = pods;
    const reason = pod === undefined ? 'it has no Pod' : reasonOf(pod);
    throw new EnvdError('not_found', `sandbox '${sandbox}' cannot be resumed: ${reason}`);
  }

  /** Returns the answer to the list hook, line by line. Throws `unavailable` while the Pods could be old. */
  async list(): Promise<readonly string[]> {
    const { cluster, pause, endings } = this.#parts;
    return listLines(cluster, endings.reasons, pause.includes('disk'));
  }
}

const NOT_PAUSED: Readonly<Record<PauseWay, string>> = {
  freeze:
    'a Pod cannot be paused with its memory: --pause freeze keeps its processes frozen where the daemon may',
  disk: 'the disks of sandboxes are not kept: --pause disk keeps ephemeral volumes',
};

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
