import { readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import {
  ApiException,
  CoreV1Api,
  KubeConfig,
  NetworkingV1Api,
  PatchStrategy,
  type RequestContext,
  setHeaderOptions,
  type V1ConfigMap,
  type V1NetworkPolicy,
  type V1PersistentVolumeClaim,
  type V1Pod,
} from '@kubernetes/client-node';
import { EnvdError, messageOf } from '../../base/errors.ts';
import { monotonicMs } from '../../base/monotonic.ts';
import type { KeptClaim } from '../pods/claims.ts';
import { OWNER, SANDBOX, STATE, TEMPLATE } from '../pods/labels.ts';
import { nameOf } from '../pods/state.ts';
import { Watched } from './watched.ts';

/** The API server must answer within this time, in ms. Watches last longer. */
const ANSWER_MS = 30_000;
/** Connections are made anew after this time, in ms, with the certificates that the configuration then has. */
const RENEW_MS = 600_000;

/** Counts the requests to the API server, by their verb. */
export type Requests = Record<'list' | 'create' | 'patch' | 'delete', number>;

/**
 * The client makes a pool of connections for each request, which is then open for some seconds: a handshake for each, and hundreds of
 * connections while many sandboxes are created. All requests share one here.
 */
class SharedConnections extends KubeConfig {
  #kept: { readonly dispatcher: ReturnType<RequestContext['getDispatcher']>; readonly since: number } | null =
    null;

  override async applySecurityAuthentication(context: RequestContext): Promise<void> {
    await super.applySecurityAuthentication(context);
    const now = monotonicMs();
    if (this.#kept === null || now - this.#kept.since > RENEW_MS)
      this.#kept = { dispatcher: context.getDispatcher(), since: now };
    if (this.#kept.dispatcher) context.setDispatcher(this.#kept.dispatcher);
    context.setSignal(AbortSignal.timeout(ANSWER_MS));
  }
}

/** Reads how the API server is reached. Throws `invalid_argument` if that cannot be read. */
function readAccess(file: string | null): KubeConfig {
  const config = new SharedConnections();
  try {
    if (file === null) config.loadFromCluster();
    else config.loadFromString(readFileSync(file, 'utf8'));
    return config;
  } catch (error) {
    const from = file === null ? 'the service account of this Pod' : `'${file}'`;
    throw new EnvdError('invalid_argument', `cannot use ${from}: ${messageOf(error)}`, { cause: error });
  }
}

/** The Pods and ConfigMaps of one namespace. Every failure is an `EnvdError`. */
export class Cluster {
  readonly requests: Requests = { list: 0, create: 0, patch: 0, delete: 0 };
  readonly pods: Watched<V1Pod>;
  readonly templates: Watched<V1ConfigMap>;
  readonly #api: CoreV1Api;
  readonly #networking: NetworkingV1Api;
  readonly #namespace: string;

  /** @param kubeconfig the path of a file; null: this program runs in a Pod, with a service account */
  constructor(kubeconfig: string | null, namespace: string) {
    const access = readAccess(kubeconfig);
    const api = access.makeApiClient(CoreV1Api);
    this.#api = api;
    this.#networking = access.makeApiClient(NetworkingV1Api);
    this.#namespace = namespace;
    const scope = { namespace, labelSelector: TEMPLATE };
    const pods = { namespace, kind: 'pods' } as const;
    this.pods = new Watched<V1Pod>(access, pods, TEMPLATE, () => api.listNamespacedPod(scope));
    const maps = { namespace, kind: 'configmaps' } as const;
    this.templates = new Watched<V1ConfigMap>(access, maps, TEMPLATE, () =>
      api.listNamespacedConfigMap(scope),
    );
  }

  /** Returns the Pods of a sandbox as the API server has them now; what is watched may be older. */
  async podsOf(sandbox: string): Promise<readonly V1Pod[]> {
    const labelSelector = `${SANDBOX}=${sandbox}`;
    const list = await this.#ask('list', 'list Pods', () =>
      this.#api.listNamespacedPod({ namespace: this.#namespace, labelSelector }),
    );
    return list.items;
  }

  create(pod: V1Pod): Promise<V1Pod> {
    const body = { namespace: this.#namespace, body: pod };
    return this.#ask('create', 'create a Pod', () => this.#api.createNamespacedPod(body));
  }

  /** Makes a policy. It is no failure if it is there already. */
  async limit(policy: V1NetworkPolicy): Promise<void> {
    const body = { namespace: this.#namespace, body: policy };
    try {
      await this.#ask('create', 'create a NetworkPolicy', () =>
        this.#networking.createNamespacedNetworkPolicy(body),
      );
    } catch (error) {
      if (apiStatusOf(error) !== 409) throw error;
    }
  }

  /** Returns the claims that stay for a paused sandbox, or for all. */
  async claimsOf(sandbox: string | null): Promise<readonly V1PersistentVolumeClaim[]> {
    const labelSelector = sandbox === null ? SANDBOX : `${SANDBOX}=${sandbox}`;
    const list = await this.#ask('list', 'list claims', () =>
      this.#api.listNamespacedPersistentVolumeClaim({ namespace: this.#namespace, labelSelector }),
    );
    return list.items.filter(({ metadata }) => metadata?.deletionTimestamp === undefined);
  }

  /**
   * Lets a claim stay when its Pod goes, by taking it from the Pod. Returns false if it is gone: one of its name may be that of another
   * Pod by now.
   */
  async keep({ name, podUid, labels, annotations }: KeptClaim): Promise<boolean> {
    const { items } = await this.#ask('list', 'find a claim', () =>
      this.#api.listNamespacedPersistentVolumeClaim({
        namespace: this.#namespace,
        fieldSelector: `metadata.name=${name}`,
      }),
    );
    const { uid, ownerReferences = [], labels: has, deletionTimestamp } = items[0]?.metadata ?? {};
    // It goes as soon as no Pod uses it.
    if (deletionTimestamp !== undefined) return false;
    if (has?.[SANDBOX] === labels[SANDBOX]) return true;
    if (uid === undefined || !ownerReferences.some((owner) => owner.uid === podUid)) return false;
    const options = setHeaderOptions('Content-Type', PatchStrategy.MergePatch);
    // The server refuses the patch if the claim has another uid by then.
    const body = { metadata: { uid, ownerReferences: null, labels, annotations } };
    const request = { namespace: this.#namespace, name, body };
    try {
      await this.#ask('patch', 'keep a claim', () =>
        this.#api.patchNamespacedPersistentVolumeClaim(request, options),
      );
      return true;
    } catch (error) {
      if (apiStatusOf(error) === 404 || apiStatusOf(error) === 409) return false;
      throw error;
    }
  }

  /** Deletes a claim. It is no failure if it is gone. */
  async removeClaim({ metadata: { name = '', uid } = {} }: V1PersistentVolumeClaim): Promise<void> {
    const body = { preconditions: { ...(uid !== undefined && { uid }) } };
    const request = { namespace: this.#namespace, name, body };
    try {
      await this.#ask('delete', 'delete a claim', () =>
        this.#api.deleteNamespacedPersistentVolumeClaim(request),
      );
    } catch (error) {
      if (apiStatusOf(error) !== 404 && apiStatusOf(error) !== 409) throw error;
    }
  }

  /** Gives a warm Pod to a sandbox. Returns null if another sandbox has it already, or if it is gone. */
  async claim(pod: V1Pod, sandbox: string, owner: string | null): Promise<V1Pod | null> {
    const label = (name: string) => `/metadata/labels/${name.replace('/', '~1')}`;
    const annotations = { ...pod.metadata?.annotations, ...(owner !== null && { [OWNER]: owner }) };
    const body = [
      { op: 'test', path: '/metadata/uid', value: pod.metadata?.uid },
      { op: 'test', path: label(STATE), value: 'warm' },
      { op: 'replace', path: label(STATE), value: 'used' },
      { op: 'add', path: label(SANDBOX), value: sandbox },
      { op: 'add', path: '/metadata/annotations', value: annotations },
    ];
    const options = setHeaderOptions('Content-Type', PatchStrategy.JsonPatch);
    const request = { namespace: this.#namespace, name: nameOf(pod), body };
    try {
      return await this.#ask('patch', 'claim a Pod', () => this.#api.patchNamespacedPod(request, options));
    } catch (error) {
      // The server answers 422 to a test that fails.
      if (apiStatusOf(error) === 404 || apiStatusOf(error) === 409 || apiStatusOf(error) === 422) return null;
      throw error;
    }
  }

  /**
   * Deletes this Pod, and never another one of its name. With `unchanged`, only if nobody has changed it since it was read. Returns
   * false if it was changed or is gone.
   */
  async remove(pod: V1Pod, unchanged: 'unchanged' | 'any'): Promise<boolean> {
    const { uid, resourceVersion } = pod.metadata ?? {};
    const preconditions = {
      ...(uid !== undefined && { uid }),
      ...(unchanged === 'unchanged' && resourceVersion !== undefined && { resourceVersion }),
    };
    const request = { namespace: this.#namespace, name: nameOf(pod), body: { preconditions } };
    try {
      await this.#ask('delete', 'delete a Pod', () => this.#api.deleteNamespacedPod(request));
      return true;
    } catch (error) {
      if (apiStatusOf(error) === 404 || apiStatusOf(error) === 409) return false;
      throw error;
    }
  }

  async #ask<T>(verb: keyof Requests, what: string, work: () => Promise<T>): Promise<T> {
    const end = monotonicMs() + ANSWER_MS;
    for (;;) {
      this.requests[verb]++;
      try {
        return await work();
      } catch (error) {
        const waitMs = waitAsked(error);
        if (waitMs === null || monotonicMs() + waitMs > end) throw asEnvdError(error, what);
        await delay(waitMs);
      }
    }
  }
}

/** Returns the time after which a server that has too much to do wants to be asked again, in ms, or null. It has done nothing then. */
function waitAsked(error: unknown): number | null {
  if (!(error instanceof ApiException) || (error.code !== 429 && error.code !== 503)) return null;
  const seconds = Number.parseInt(error.headers['retry-after'] ?? '', 10);
  return seconds > 0 ? seconds * 1000 : null;
}

/** Returns the status of a failed request, or null if there was no answer. */
export function apiStatusOf(error: unknown): number | null {
  const cause = error instanceof Error ? (error.cause ?? error) : error;
  return cause instanceof ApiException ? cause.code : null;
}

function asEnvdError(error: unknown, what: string): EnvdError {
  const options = { cause: error };
  if (!(error instanceof ApiException))
    return new EnvdError(
      'unavailable',
      `cannot ${what}: the API server did not answer: ${messageOf(error)}`,
      options,
    );
  const message = messageIn(error.body) ?? `status ${error.code}`;
  const kind = error.code === 403 && /exceeded quota/.test(message) ? 'resource_exhausted' : 'unavailable';
  return new EnvdError(kind, `cannot ${what}: ${message}`, options);
}

/** Returns the sentence in a `Status` of the API server. */
function messageIn(body: unknown): string | null {
  try {
    const status: unknown = typeof body === 'string' ? JSON.parse(body) : body;
    if (typeof status === 'object' && status !== null && 'message' in status) return String(status.message);
  } catch {
    // A proxy in front of the server has answered.
  }
  return null;
}
