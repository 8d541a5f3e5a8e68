import type { FastifyInstance, FastifyRequest } from 'fastify';
import { EnvdError } from '../../base/errors.ts';
import { hostOf, type Outcome, type Phase, type Sandbox } from '../leases/sandbox.ts';
import { pause, removeSandbox } from '../leases/transitions.ts';
import { usageKeyOf } from '../leases/usage.ts';
import type { Registry } from '../registry/registry.ts';
import { Shared } from './shared.ts';

export interface HostParts {
  readonly registry: Registry;
  /** Says which hooks are configured. */
  readonly hooks: { readonly pause: boolean; readonly kill: boolean };
  /** Is called after each change of a record. */
  readonly onChange: (sandbox: Sandbox) => void;
}

/** What runs on a host. The sizes are of the machines that run, as far as the platform has named them. */
interface HostView {
  readonly host: string;
  readonly drain: boolean;
  readonly sandboxes: Readonly<Partial<Record<Phase, number>>>;
  readonly cpuCount: number;
  readonly memoryMB: number;
}

interface DrainBody {
  readonly drain: boolean;
  /** What happens to the sandboxes that are there. */
  readonly sandboxes?: Outcome;
}

const drainSchema = {
  type: 'object',
  required: ['drain'],
  additionalProperties: false,
  properties: { drain: { type: 'boolean' }, sandboxes: { enum: ['pause', 'remove'] } },
} as const;

const hostSchema = {
  type: 'object',
  properties: { host: { type: 'string', maxLength: 253 } },
} as const;

/** Shows hosts, and empties those that are drained. A host is known as long as it has a sandbox, or is drained. */
export class Hosts {
  readonly #parts: HostParts;
  readonly #lists = new Shared<readonly HostView[]>();

  constructor(parts: HostParts) {
    this.#parts = parts;
  }

  /** Concurrent calls share one list, because it reads all records. */
  list(): Promise<readonly HostView[]> {
    return this.#lists.run('', () => this.#list());
  }

  /**
   * Begins or ends a drain, after which no sandbox is created on the host. With `sandboxes`, also begins to pause or remove those
   * that are there. Returns their number. Throws `unimplemented` without the hook that does so.
   */
  async drain(host: string, { drain, sandboxes }: DrainBody): Promise<number> {
    const { registry, hooks } = this.#parts;
    if (!drain && sandboxes) throw new EnvdError('invalid_argument', 'sandboxes needs drain: true');
    if (sandboxes === 'pause' && !hooks.pause) throw missing('--hook', 'pause');
    if (sandboxes === 'remove' && !hooks.kill) throw missing('--kill-hook', 'remove');
    await registry.shared.setDrained(host, drain);
    let begun = 0;
    if (drain)
      for await (const sandbox of registry.list())
        if (hostOf(sandbox) === host && (await this.#end(sandbox, sandboxes))) begun++;
    return begun;
  }

  /** Returns whether this call has begun to end the sandbox. One that is being created always ends, because nobody knows it yet. */
  async #end({ id, phase: seen }: Sandbox, sandboxes: Outcome | undefined): Promise<boolean> {
    const isCreating = seen === 'creating' && this.#parts.hooks.kill;
    const outcome = isCreating ? 'remove' : sandboxes;
    if (outcome === undefined) return false;
    let isBegun = false;
    try {
      const changed = await this.#parts.registry.change(id, (current, now) => {
        if (isCreating && current.phase !== seen && sandboxes !== 'remove') return current;
        if (outcome === 'remove' && isOnNoHost(current)) return current;
        const next =
          outcome === 'pause' ? pause(current, now, 'drain') : removeSandbox(current, now, 'drain');
        isBegun = next !== current;
        return next;
      });
      if (changed && isBegun) this.#parts.onChange(changed);
    } catch (error) {
      // One that is paused or ends already needs nothing.
      if (error instanceof EnvdError && (error.kind === 'conflict' || error.kind === 'not_found'))
        return false;
      throw error;
    }
    return isBegun;
  }

  async #list(): Promise<readonly HostView[]> {
    const { registry } = this.#parts;
    const drained = await registry.shared.drained();
    const views = new Map([...drained].map((host) => [host, emptyView(host, true)]));
    for await (const sandbox of registry.list()) {
      const host = hostOf(sandbox);
      // One that is being created has no place yet.
      if (host !== '') views.set(host, withSandbox(views.get(host) ?? emptyView(host, false), sandbox));
    }
    return [...views.values()].toSorted((a, b) => (a.host < b.host ? -1 : 1));
  }
}

/** Returns whether the disk alone is kept, which a new machine may get on any host. */
function isOnNoHost({ phase, machine }: Sandbox): boolean {
  return phase === 'paused' && machine === 'disk';
}

function emptyView(host: string, drain: boolean): HostView {
  return { host, drain, sandboxes: {}, cpuCount: 0, memoryMB: 0 };
}

function withSandbox(view: HostView, sandbox: Sandbox): HostView {
  const { phase, cpuCount = 0, memoryMB = 0 } = sandbox;
  const runs = usageKeyOf(sandbox) !== '';
  return {
    ...view,
    sandboxes: { ...view.sandboxes, [phase]: (view.sandboxes[phase] ?? 0) + 1 },
    cpuCount: view.cpuCount + (runs ? cpuCount : 0),
    memoryMB: view.memoryMB + (runs ? memoryMB : 0),
  };
}

function missing(flag: string, outcome: Outcome): EnvdError {
  return new EnvdError('unimplemented', `this gateway has no ${flag}, so it cannot ${outcome} sandboxes`);
}

/** Adds the operations on hosts. */
export function hostRoutes(app: FastifyInstance, hosts: Hosts): void {
  app.get('/hosts', async () => hosts.list());
  app.patch(
    '/hosts/:host',
    { schema: { body: drainSchema, params: hostSchema } },
    async ({ params, body }: FastifyRequest<{ Params: { host: string }; Body: DrainBody }>) => {
      const begun = await hosts.drain(params.host, body);
      return { host: params.host, drain: body.drain, begun };
    },
  );
}
