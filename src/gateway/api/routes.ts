import type { FastifyInstance } from 'fastify';
import { EnvdError } from '../../base/errors.ts';
import type { Outcome, Sandbox } from '../leases/sandbox.ts';
import type { Drain } from '../routes/drain.ts';
import type { Operations } from './operations.ts';
import {
  connectSchema,
  listSchema,
  type RegisterBody,
  refreshSchema,
  registerSchema,
  stateOf,
  timeoutSchema,
  viewOf,
  viewWithToken,
} from './schemas.ts';

interface WithId {
  readonly Params: { readonly id: string };
}

/** Registers and removes sandboxes. */
export function registrationRoutes(app: FastifyInstance, operations: Operations, onExpiry: Outcome): void {
  app.post<{ Body: RegisterBody }>(
    '/sandboxes',
    { schema: { body: registerSchema } },
    async ({ body }, reply) => {
      const { sandboxID: id, timeout, envdAccessToken: accessToken = null, owner = null, ...rest } = body;
      const sandbox = await operations.register({ id, accessToken, owner, onExpiry, ...rest }, timeout);
      return reply.code(201).send(viewWithToken(sandbox));
    },
  );
  app.delete<WithId>('/sandboxes/:id', async ({ params }, reply) => {
    await operations.remove(params.id);
    return reply.code(204).send();
  });
}

/** Lists and shows sandboxes. */
export function sandboxRoutes(app: FastifyInstance, operations: Operations): void {
  for (const path of ['/sandboxes', '/v2/sandboxes']) {
    app.get<{ Querystring: Filter }>(path, { schema: { querystring: listSchema } }, async (request) => {
      const sandboxes = await operations.list(request.caller);
      return sandboxes
        .filter((sandbox) => matches(sandbox, request.query))
        .toSorted((a, b) => a.startedAt - b.startedAt || (a.id < b.id ? -1 : 1))
        .map(viewOf);
    });
  }
  app.get<WithId>('/sandboxes/:id', async ({ caller, params }) =>
    viewWithToken(await operations.look(caller, params.id)),
  );
}

/** Changes the time to live of sandboxes. */
export function timeRoutes(app: FastifyInstance, operations: Operations): void {
  app.post<WithId & { Body: { readonly timeout: number } }>(
    '/sandboxes/:id/timeout',
    { schema: { body: timeoutSchema } },
    async ({ caller, params, body }, reply) => {
      await operations.setTimeToLive(caller, params.id, body.timeout);
      return reply.code(204).send();
    },
  );
  app.post<WithId & { Body: { readonly duration?: number } | null }>(
    '/sandboxes/:id/refreshes',
    { schema: { body: refreshSchema } },
    async ({ caller, params, body }, reply) => {
      await operations.extend(caller, params.id, body?.duration);
      return reply.code(204).send();
    },
  );
  for (const path of ['/sandboxes/:id/connect', '/v2/sandboxes/:id/connect']) {
    app.post<WithId & { Body: { readonly timeout?: number } | null }>(
      path,
      { schema: { body: connectSchema } },
      async ({ caller, params, body }) =>
        viewWithToken(await operations.connect(caller, params.id, body?.timeout)),
    );
  }
}

/** Reports whether the registry can be asked, without which no request can be routed, and whether the gateway goes on. */
export function healthRoute(app: FastifyInstance, operations: Operations, drain: Drain): void {
  app.get('/gateway/health', async (_request, reply) => {
    if (drain.isActive) throw new EnvdError('unavailable', 'the gateway is about to stop');
    await operations.ping();
    return reply.code(204).send();
  });
}

/** The gateway's metrics in Prometheus' text format. */
export type Metrics = () => Promise<{ readonly contentType: string; readonly text: string }>;

export function metricsRoute(app: FastifyInstance, metrics: Metrics): void {
  app.get('/gateway/metrics', async (_request, reply) => {
    const { contentType, text } = await metrics();
    return reply.header('content-type', contentType).send(text);
  });
}

interface Filter {
  /** `running`, `paused` or both, separated by a comma. */
  readonly state?: string;
  /** Keys and values as in a query. */
  readonly metadata?: string;
}

function matches(sandbox: Sandbox, { state, metadata = '' }: Filter): boolean {
  if (state && !state.split(',').includes(stateOf(sandbox))) return false;
  // Published clients encode keys and values twice.
  const wanted = [...new URLSearchParams(metadata)].map((pair) => pair.map(decode));
  return wanted.every(([key = '', value]) => sandbox.metadata[key] === value);
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
