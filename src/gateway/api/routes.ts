import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { EnvdError } from '../../base/errors.ts';
import { trafficTokenFor } from '../access/previews.ts';
import type { MachineComparison } from '../expiry/machine-comparison.ts';
import type { Outcome, PauseKeeps } from '../leases/sandbox.ts';
import type { Drain } from '../routes/drain.ts';
import type { CreateRoutes } from './create-routes.ts';
import {
  type ListQuery,
  listSchema,
  readPage,
  readTimes,
  type TimeQuery,
  timesSchema,
  tokenOf,
} from './lists.ts';
import type { Operations } from './operations.ts';
import {
  type ConnectBody,
  connectSchema,
  pauseSchema,
  type RegisterBody,
  refreshSchema,
  registerSchema,
  timeoutSchema,
} from './schemas.ts';
import { assertOnly, assertPausable, assertWithMemory } from './unprovided.ts';
import type { Views } from './views.ts';

interface WithId {
  readonly Params: { readonly id: string };
}

export interface RegistrationParts {
  readonly operations: Operations;
  readonly views: Views;
  /** Registrations without `onExpiry` get this value. */
  readonly onExpiry: Outcome;
  readonly creations: CreateRoutes;
  /** Throws `permission_denied` for callers that may not register sandboxes. */
  readonly authorize: (request: FastifyRequest) => void;
}

/** Adds the operations that register, create and remove sandboxes. */
export function registrationRoutes(
  app: FastifyInstance,
  { operations, views, onExpiry, creations, authorize }: RegistrationParts,
): void {
  const preValidation = async (request: FastifyRequest, reply: FastifyReply) => {
    const created = await creations.takeOver(request, reply);
    if (created) return created;
    authorize(request);
    return undefined;
  };
  app.post<{ Body: RegisterBody }>(
    '/sandboxes',
    { schema: { body: registerSchema }, preValidation },
    async ({ body }, reply) => {
      const { sandboxID: id, timeout, envdAccessToken: accessToken = null, owner = null, ...others } = body;
      const { allowPublicTraffic, ...rest } = others;
      const sandbox = await operations.register(
        { id, accessToken, owner, onExpiry, ...rest, ...trafficTokenFor(allowPublicTraffic) },
        timeout,
      );
      return reply.code(201).send(views.withToken(sandbox));
    },
  );
  app.delete<WithId>('/sandboxes/:id', async ({ caller, params }, reply) => {
    await operations.remove(caller, params.id);
    return reply.code(204).send();
  });
}

/** Adds the operations that list and show sandboxes. */
export function sandboxRoutes(app: FastifyInstance, operations: Operations, views: Views): void {
  for (const [path, order] of [
    ['/sandboxes', 'asc'],
    ['/v2/sandboxes', 'desc'],
  ] as const) {
    const options = { schema: { querystring: listSchema } };
    app.get<{ Querystring: ListQuery }>(path, options, async ({ caller, query }, reply) => {
      const { sandboxes, next } = await operations.list(caller, readPage(query, order));
      reply.header('access-control-expose-headers', 'X-Next-Token');
      if (next) reply.header('x-next-token', tokenOf(next));
      return sandboxes.map((sandbox) => views.of(sandbox));
    });
  }
  app.get<WithId>('/sandboxes/:id', async ({ caller, params }) =>
    views.withToken(await operations.look(caller, params.id)),
  );
  app.get<WithId & { Querystring: TimeQuery }>(
    '/sandboxes/:id/metrics',
    { schema: { querystring: timesSchema } },
    async ({ caller, params, query }) => {
      const isWanted = readTimes(query);
      return (await operations.metrics(caller, params.id)).filter(({ timestampUnix }) =>
        isWanted(timestampUnix),
      );
    },
  );
}

/** Adds the operations that change the time to live of sandboxes. */
export function timeRoutes(
  app: FastifyInstance,
  operations: Operations,
  views: Views,
  keeps: readonly PauseKeeps[],
): void {
  app.post<WithId & { Body: { readonly timeout: number } }>(
    '/sandboxes/:id/timeout',
    { schema: { body: timeoutSchema } },
    async ({ caller, params, body }, reply) => {
      assertOnly(body, 'timeout');
      await operations.setTimeToLive(caller, params.id, body.timeout);
      return reply.code(204).send();
    },
  );
  app.post<WithId & { Body: { readonly duration?: number } | null }>(
    '/sandboxes/:id/refreshes',
    { schema: { body: refreshSchema } },
    async ({ caller, params, body }, reply) => {
      assertOnly(body, 'duration');
      await operations.extend(caller, params.id, body?.duration);
      return reply.code(204).send();
    },
  );
  for (const path of ['/sandboxes/:id/connect', '/v2/sandboxes/:id/connect']) {
    app.post<WithId & { Body: ConnectBody | null }>(
      path,
      { schema: { body: connectSchema } },
      async ({ caller, params, body }, reply) => {
        assertOnly(body, 'timeout', 'memory');
        assertWithMemory(body?.memory, keeps);
        const { sandbox, resumed } = await operations.connect(caller, params.id, body ?? {});
        return reply.code(resumed ? 201 : 200).send(views.withToken(sandbox));
      },
    );
  }
}

/** Adds the operations that pause and resume sandboxes by the hooks. */
export function pauseRoutes(
  app: FastifyInstance,
  operations: Operations,
  views: Views,
  keeps: readonly PauseKeeps[],
): void {
  app.post<WithId & { Body: { readonly memory?: boolean } | null }>(
    '/sandboxes/:id/pause',
    { schema: { body: pauseSchema } },
    async ({ caller, params, body }, reply) => {
      assertOnly(body, 'memory');
      assertPausable(body?.memory, keeps);
      await operations.pause(caller, params.id, body?.memory ?? true);
      return reply.code(204).send();
    },
  );
  app.post<WithId & { Body: ConnectBody | null }>(
    '/sandboxes/:id/resume',
    { schema: { body: connectSchema } },
    async ({ caller, params, body }, reply) => {
      assertOnly(body, 'timeout', 'memory');
      assertWithMemory(body?.memory, keeps);
      const sandbox = await operations.resume(caller, params.id, body ?? {});
      return reply.code(201).send(views.withToken(sandbox));
    },
  );
}

/**
 * Adds the health check. It fails when the registry cannot be used, because no request could be routed, and during the drain,
 * when load balancers should send no more requests.
 */
export function healthRoute(app: FastifyInstance, operations: Operations, drain: Drain): void {
  app.get('/gateway/health', async (_request, reply) => {
    if (drain.isActive)
      throw new EnvdError('unavailable', 'the gateway is stopping: send requests to another one');
    await operations.ping();
    return reply.code(204).send();
  });
}

/** Returns the metrics of the gateway in the text format of Prometheus, with its content type. */
export type SandboxMetrics = () => Promise<{ readonly contentType: string; readonly text: string }>;

/** Adds the operation that returns the metrics of the gateway. */
export function metricsRoute(app: FastifyInstance, metrics: SandboxMetrics): void {
  app.get('/gateway/metrics', async (_request, reply) => {
    const { contentType, text } = await metrics();
    return reply.header('content-type', contentType).send(text);
  });
}

/** Adds the operation that returns how the machines and the registry differ. */
export function differencesRoute(
  app: FastifyInstance,
  comparison: Pick<MachineComparison, 'differences'> | null,
): void {
  app.get('/gateway/differences', async () => {
    if (comparison) return comparison.differences;
    const message = 'this gateway has no --list-hook, so it does not know which machines exist';
    throw new EnvdError('unimplemented', message);
  });
}
