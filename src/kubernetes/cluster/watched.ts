import { EventEmitter } from 'node:events';
import {
  type KubeConfig,
  type KubernetesListObject,
  type KubernetesObject,
  makeInformer,
} from '@kubernetes/client-node';

/** After a failure, the watch begins again after this time, in ms. */
const RETRY_MS = 1000;

interface Events {
  /** The object with this name has changed. */
  change: [name: string];
  /** The objects have become current, or are not current any more. */
  state: [isCurrent: boolean];
}

/** Objects of a kind, as a watch of the API server tells of them. */
export class Watched<T extends KubernetesObject> extends EventEmitter<Events> {
  readonly #informer: ReturnType<typeof makeInformer<T>>;
  readonly #namespace: string;
  #retry: NodeJS.Timeout | null = null;
  #isStopped = false;
  #isCurrent = false;
  #failure: unknown = null;
  /** Whether listeners know of the failure, so that its repetitions are not told. */
  #isTold = false;

  constructor(
    access: KubeConfig,
    { namespace, kind }: { readonly namespace: string; readonly kind: 'pods' | 'configmaps' },
    labelSelector: string,
    list: () => Promise<KubernetesListObject<T>>,
  ) {
    super();
    this.setMaxListeners(0);
    this.#namespace = namespace;
    const path = `/api/v1/namespaces/${encodeURIComponent(namespace)}/${kind}`;
    this.#informer = makeInformer<T>(access, path, list, labelSelector);
    this.#informer.on('change', ({ metadata }) => this.emit('change', metadata?.name ?? ''));
    this.#informer.on('error', (error) => this.#fail(error));
  }

  /** Whether the objects are those of the cluster, except for the last moments. */
  get isCurrent(): boolean {
    return this.#isCurrent;
  }

  /** Why the objects are not current; null: they have not been read yet, or are current. */
  get failure(): unknown {
    return this.#failure;
  }

  /** Resolves when the objects have been read for the first time, or when that has failed and is tried again later. */
  async start(): Promise<void> {
    this.#failure = null;
    try {
      await this.#informer.start();
      if (this.#failure !== null || this.#isStopped) return;
      this.#isCurrent = true;
      this.#isTold = false;
      this.emit('state', true);
    } catch (error) {
      this.#fail(error);
    }
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    if (this.#retry) clearTimeout(this.#retry);
    await this.#informer.stop();
  }

  list(): readonly T[] {
    return this.#informer.list();
  }

  get(name: string): T | undefined {
    return this.#informer.get(name, this.#namespace);
  }

  /** Returns the first value that `look` finds, now, after a change of the object with this name, or when the objects become current. */
  async until<R>(
    name: string,
    signal: AbortSignal,
    look: (object: T | undefined) => R | undefined,
  ): Promise<R> {
    const { promise, resolve, reject } = Promise.withResolvers<R>();
    const check = (changed: string) => {
      if (changed !== name) return;
      try {
        const found = look(this.get(name));
        if (found !== undefined) resolve(found);
      } catch (error) {
        reject(error);
      }
    };
    const onAbort = () => reject(signal.reason);
    const onState = () => check(name);
    this.on('change', check).on('state', onState);
    signal.addEventListener('abort', onAbort, { once: true });
    if (signal.aborted) onAbort();
    check(name);
    try {
      return await promise;
    } finally {
      this.off('change', check).off('state', onState);
      signal.removeEventListener('abort', onAbort);
    }
  }

  #fail(error: unknown): void {
    if (this.#isStopped) return;
    this.#isCurrent = false;
    this.#failure = error ?? new Error('the watch has ended');
    if (!this.#isTold) this.emit('state', false);
    this.#isTold = true;
    if (this.#retry) return;
    this.#retry = setTimeout(() => {
      this.#retry = null;
      void this.start();
    }, RETRY_MS).unref();
  }
}
