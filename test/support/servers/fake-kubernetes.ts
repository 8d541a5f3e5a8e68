import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';

/** An object as the API has it, as far as tests look at it. */
export interface FakeObject {
  readonly metadata: {
    readonly name: string;
    readonly uid: string;
    readonly resourceVersion: string;
    readonly labels: Readonly<Record<string, string>>;
    readonly annotations?: Readonly<Record<string, string>>;
    readonly deletionTimestamp?: string;
    readonly ownerReferences?: readonly { readonly uid: string }[];
  };
  // biome-ignore lint/suspicious/noExplicitAny: specifications are looked at member by member
  readonly spec?: any;
  readonly data?: Readonly<Record<string, string>>;
  readonly status?: object;
}

type Kind = 'pods' | 'configmaps' | 'persistentvolumeclaims';
type Sent = 'ADDED' | 'MODIFIED' | 'DELETED';

interface Change {
  readonly kind: Kind;
  readonly type: Sent;
  readonly object: FakeObject;
}

const NAMESPACE = 'sandboxes';

export const READY = { phase: 'Running', conditions: [{ type: 'Ready', status: 'True' }] } as const;

/**
 * A small API server for Pods and ConfigMaps of one namespace: lists, watches, creations, JSON patches with tests, deletions with
 * preconditions. NetworkPolicies and the claims of ephemeral volumes are kept, and end with their Pods. It has no scheduler and no node:
 * `onPod` gives a new Pod its status, as they would.
 */
export class FakeKubernetes implements AsyncDisposable {
  readonly #server = createServer((request, response) => {
    // The connection may end before the body has come.
    this.#serve(request, response).catch(() => response.destroy());
  });
  readonly #policies = new Map<string, FakeObject>();
  readonly #objects: Readonly<Record<Kind, Map<string, FakeObject>>> = {
    pods: new Map(),
    configmaps: new Map(),
    persistentvolumeclaims: new Map(),
  };
  readonly #changes: Change[] = [];
  readonly #watches = new Set<{ readonly kind: Kind; readonly response: ServerResponse }>();
  #version = 100;
  /** Requests such as `POST pods`, without watches. */
  readonly requests: string[] = [];
  /** Returns the status of a new Pod; null: it stays as it is. */
  onPod: (pod: FakeObject) => object | null = () => ({ ...READY, podIP: '10.1.2.3' });
  /** Returns a failure in place of an answer, as `[status, message]`. */
  refuse: (request: string, name: string) => readonly [status: number, message: string] | null = () => null;

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async start(port = 0): Promise<this> {
    await once(this.#server.listen(port, '127.0.0.1'), 'listening');
    return this;
  }

  get pods(): readonly FakeObject[] {
    return [...this.#objects.pods.values()];
  }

  get claims(): readonly FakeObject[] {
    return [...this.#objects.persistentvolumeclaims.values()];
  }

  /** The policies whose Pods are there. */
  get policies(): readonly FakeObject[] {
    return [...this.#policies.values()].filter(({ metadata }) =>
      this.pods.some((pod) => pod.metadata.uid === metadata.ownerReferences?.[0]?.uid),
    );
  }

  /** The Pods with this label. */
  labelled(name: string, value: string): readonly FakeObject[] {
    return this.pods.filter(({ metadata }) => metadata.labels[name] === value);
  }

  /** Makes or changes a template. */
  template(id: string, data: Readonly<Record<string, string>>): void {
    const type = this.#objects.configmaps.has(id) ? 'MODIFIED' : 'ADDED';
    this.#put('configmaps', type, { metadata: this.#metadata(id, { 'envd/template': id }), data });
  }

  status(name: string, status: object): void {
    const pod = this.#objects.pods.get(name);
    if (pod) this.#put('pods', 'MODIFIED', { ...pod, status });
  }

  /** Makes a Pod, as another program does. */
  add({
    metadata: { name, labels },
    ...rest
  }: {
    readonly metadata: Pick<FakeObject['metadata'], 'name' | 'labels'>;
  }): void {
    this.#claim(this.#put('pods', 'ADDED', { ...rest, metadata: this.#metadata(name, labels) }));
  }

  /** Begins to remove a Pod, as an eviction does: its processes have some seconds. A claim goes when its Pod is gone. */
  end(name: string, kind: Kind = 'pods'): void {
    const object = this.#objects[kind].get(name);
    const deletionTimestamp = new Date().toISOString();
    if (object)
      this.#put(kind, 'MODIFIED', { ...object, metadata: { ...object.metadata, deletionTimestamp } });
  }

  /** Removes a Pod, as an eviction does. */
  remove(name: string): void {
    const pod = this.#objects.pods.get(name);
    if (!pod) return;
    this.#objects.pods.delete(name);
    for (const { metadata } of this.claims)
      if (metadata.ownerReferences?.[0]?.uid === pod.metadata.uid)
        this.#objects.persistentvolumeclaims.delete(metadata.name);
    const metadata = { ...pod.metadata, resourceVersion: String(++this.#version) };
    this.#tell({ kind: 'pods', type: 'DELETED', object: { ...pod, metadata } });
  }

  /** Ends all watches, and forgets what has changed before, so that they cannot go on where they were. */
  dropWatches(): void {
    this.#changes.length = 0;
    this.#version += 10;
    for (const { response } of this.#watches) response.destroy();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.close();
    this.#server.closeAllConnections();
    await once(this.#server, 'close');
  }

  #metadata(name: string, labels: Readonly<Record<string, string>>): FakeObject['metadata'] {
    return { name, uid: randomUUID(), resourceVersion: '0', labels };
  }

  #put(kind: Kind, type: Sent, object: FakeObject): FakeObject {
    const resourceVersion = String(++this.#version);
    const stored = { ...object, metadata: { ...object.metadata, namespace: NAMESPACE, resourceVersion } };
    this.#objects[kind].set(object.metadata.name, stored);
    this.#tell({ kind, type, object: stored });
    return stored;
  }

  #tell(change: Change): void {
    this.#changes.push(change);
    for (const watch of this.#watches) if (watch.kind === change.kind) send(watch.response, change);
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? '/', this.url);
    const [, kind = '', name] =
      /^\/apis?\/(?:networking\.k8s\.io\/)?v1\/namespaces\/sandboxes\/(\w+)(?:\/(.+))?$/.exec(url.pathname) ??
      [];
    if (url.searchParams.has('watch')) return this.#watch(kind as Kind, url, response);
    const told = `${request.method} ${kind}`;
    this.requests.push(told);
    const refused = this.refuse(told, name ?? '');
    const body = request.method === 'GET' ? null : await json(request);
    if (refused) {
      reply(response, refused[0], refused[1]);
      return;
    }
    if (request.method === 'GET') return this.#list(kind as Kind, url, response);
    if (kind === 'networkpolicies') return this.#limit(body as FakeObject, response);
    if (request.method === 'POST') return this.#create(body as FakeObject, response);
    const pod = this.#objects[kind as Kind].get(name ?? '');
    if (!pod) {
      reply(response, 404, `${kind} "${name}" not found`);
      return;
    }
    if (kind === 'persistentvolumeclaims')
      return this.#changeClaim(pod, body as FakeObject, request.method ?? '', response);
    if (request.method === 'PATCH') return this.#patch(pod, body as readonly Patch[], response);
    return this.#delete(pod, body as Deletion | null, response);
  }

  #list(kind: Kind, url: URL, response: ServerResponse): void {
    const items = [...this.#objects[kind].values()].filter((each) => isSelected(each, url));
    reply(response, 200, { kind: 'List', metadata: { resourceVersion: String(this.#version) }, items });
  }

  #watch(kind: Kind, url: URL, response: ServerResponse): void {
    const after = Number(url.searchParams.get('resourceVersion'));
    const first = Number(this.#changes[0]?.object.metadata.resourceVersion ?? this.#version + 1);
    response.writeHead(200, { 'content-type': 'application/json' }).flushHeaders();
    if (after + 1 < first && after < this.#version) {
      const status = { kind: 'Status', code: 410, message: 'too old resource version' };
      response.end(`${JSON.stringify({ type: 'ERROR', object: status })}\n`);
      return;
    }
    for (const change of this.#changes)
      if (change.kind === kind && Number(change.object.metadata.resourceVersion) > after)
        send(response, change);
    const watch = { kind, response };
    this.#watches.add(watch);
    response.once('close', () => this.#watches.delete(watch));
  }

  #create(body: FakeObject, response: ServerResponse): void {
    const { name, labels, annotations } = body.metadata;
    if (this.#objects.pods.has(name)) {
      reply(response, 409, `pods "${name}" already exists`);
      return;
    }
    const metadata = { ...this.#metadata(name, labels), ...(annotations && { annotations }) };
    const pod = this.#put('pods', 'ADDED', { ...body, metadata, status: { phase: 'Pending' } });
    const canStart = this.#claim(pod);
    reply(response, 201, pod);
    const status = canStart ? this.onPod(pod) : null;
    if (status) setImmediate(() => this.status(name, status));
  }

  /** Claims are changed by merge patches, and deleted. */
  #changeClaim(claim: FakeObject, body: FakeObject, method: string, response: ServerResponse): void {
    const { name, labels, annotations } = claim.metadata;
    if (method === 'PATCH' && (body.metadata.uid ?? claim.metadata.uid) !== claim.metadata.uid) {
      reply(response, 409, 'the precondition failed');
      return;
    }
    if (method === 'DELETE') {
      this.#objects.persistentvolumeclaims.delete(name);
      reply(response, 200, claim);
      return;
    }
    const metadata = {
      ...claim.metadata,
      ...body.metadata,
      labels: { ...labels, ...body.metadata.labels },
      annotations: { ...annotations, ...body.metadata.annotations },
    };
    reply(response, 200, this.#put('persistentvolumeclaims', 'MODIFIED', { ...claim, metadata }));
  }

  /** The controller of ephemeral volumes. Returns false if a claim of that name is there and not of this Pod, which then waits. */
  #claim({ metadata: { name, uid }, spec }: FakeObject): boolean {
    for (const { name: volume, ephemeral } of spec.volumes ?? []) {
      if (!ephemeral) continue;
      if (this.#objects.persistentvolumeclaims.has(`${name}-${volume}`)) return false;
      const metadata = { ...this.#metadata(`${name}-${volume}`, {}), ownerReferences: [{ uid }] };
      this.#put('persistentvolumeclaims', 'ADDED', { metadata, spec: ephemeral.volumeClaimTemplate.spec });
    }
    return true;
  }

  #limit(body: FakeObject, response: ServerResponse): void {
    const { name } = body.metadata;
    if (this.#policies.has(name)) {
      reply(response, 409, `networkpolicies "${name}" already exists`);
      return;
    }
    this.#policies.set(name, body);
    reply(response, 201, body);
  }

  #patch(pod: FakeObject, operations: readonly Patch[], response: ServerResponse): void {
    const changed = structuredClone(pod);
    for (const { op, path, value } of operations) {
      const keys = path
        .slice(1)
        .split('/')
        .map((key) => key.replaceAll('~1', '/'));
      const last = keys.pop() ?? '';
      // biome-ignore lint/suspicious/noExplicitAny: a patch may name any member
      const parent = keys.reduce((at: any, key) => at[key], changed);
      if (op !== 'test') parent[last] = value;
      else if (parent[last] !== value) {
        reply(response, 422, 'the test of the patch failed');
        return;
      }
    }
    reply(response, 200, this.#put('pods', 'MODIFIED', changed));
  }

  #delete(pod: FakeObject, body: Deletion | null, response: ServerResponse): void {
    const { uid, resourceVersion } = body?.preconditions ?? {};
    const isOther = uid !== undefined && uid !== pod.metadata.uid;
    const isChanged = resourceVersion !== undefined && resourceVersion !== pod.metadata.resourceVersion;
    if (isOther || isChanged) {
      reply(response, 409, 'the precondition failed');
      return;
    }
    reply(response, 200, pod);
    this.remove(pod.metadata.name);
  }
}

interface Patch {
  readonly op: 'test' | 'add' | 'replace';
  readonly path: string;
  readonly value: unknown;
}

interface Deletion {
  readonly preconditions?: { readonly uid?: string; readonly resourceVersion?: string };
}

function isSelected({ metadata }: FakeObject, url: URL): boolean {
  const named = url.searchParams.get('fieldSelector')?.split('metadata.name=')[1];
  if (named !== undefined && named !== metadata.name) return false;
  const selector = url.searchParams.get('labelSelector');
  if (selector === null) return true;
  const [name = '', value] = selector.split('=');
  return value === undefined ? name in metadata.labels : metadata.labels[name] === value;
}

function reply(response: ServerResponse, code: number, content: object | string): void {
  const body = typeof content === 'string' ? { kind: 'Status', code, message: content } : content;
  // A server that has too much to do says so.
  const more = code === 429 ? { 'retry-after': '1' } : {};
  response.writeHead(code, { 'content-type': 'application/json', ...more }).end(JSON.stringify(body));
}

function send(response: ServerResponse, { type, object }: Change): void {
  response.write(`${JSON.stringify({ type, object })}\n`);
}
