import type { FastifyInstance } from 'fastify';
import type { Outcome, Sandbox } from '../leases/sandbox.ts';
import type { Operations } from './operations.ts';
import {
  connectSchema,
  listSchema,
  type RegisterBody,
  refreshSchema,
  registerSchema,
  timeoutSchema,
} from './schemas.ts';
import { stateOf, viewOf, viewWithToken } from './view.ts';

interface OnOne {
  readonly Params: { readonly id: string };
}

/** Sandboxes: what there is of them. */
export function sandboxRoutes(app: FastifyInstance, operations: Operations, onExpiry: Outcome): void {
  app.post<{ Body: RegisterBody }>(
    '/sandboxes',
    { schema: { body: registerSchema } },
    async ({ body }, reply) => {
      const { sandboxID: id, timeout, envdAccessToken: accessToken = null, ...rest } = body;
      const sandbox = await operations.register({ id, accessToken, onExpiry, ...rest }, timeout);
      return reply.code(201).send(viewWithToken(sandbox));
    },
  );
  for (const path of ['/sandboxes', '/v2/sandboxes']) {
    app.get<{ Querystring: Filter }>(path, { schema: { querystring: listSchema } }, async ({ query }) => {
      const sandboxes = (await operations.list()).filter((sandbox) => matches(sandbox, query));
      return sandboxes.toSorted((a, b) => a.startedAt - b.startedAt || (a.id < b.id ? -1 : 1)).map(viewOf);
    });
  }
  app.get<OnOne>('/sandboxes/:id', async ({ params }) => viewWithToken(await operations.look(params.id)));
  app.delete<OnOne>('/sandboxes/:id', async ({ params }, reply) => {
    await operations.remove(params.id);
    return reply.code(204).send();
  });
}

/** Their time to live. */
export function timeRoutes(app: FastifyInstance, operations: Operations): void {
  app.post<OnOne & { Body: { readonly timeout: number } }>(
    '/sandboxes/:id/timeout',
    { schema: { body: timeoutSchema } },
    async ({ params, body }, reply) => {
      await operations.setTimeLeft(params.id, body.timeout);
      return reply.code(204).send();
    },
  );
  app.post<OnOne & { Body: { readonly duration?: number } | null }>(
    '/sandboxes/:id/refreshes',
    { schema: { body: refreshSchema } },
    async ({ params, body }, reply) => {
      await operations.extend(params.id, body?.duration);
      return reply.code(204).send();
    },
  );
  for (const path of ['/sandboxes/:id/connect', '/v2/sandboxes/:id/connect']) {
    app.post<OnOne & { Body: { readonly timeout?: number } | null }>(
      path,
      { schema: { body: connectSchema } },
      async ({ params, body }) => viewWithToken(await operations.connect(params.id, body?.timeout)),
    );
  }
}

interface Filter {
  /** `running`, `paused` or both, separated by a comma. */
  readonly state?: string;
  /** Keys and values as in a query. */
  readonly metadata?: string;
}

function matches(sandbox: Sandbox, { state, metadata = '' }: Filter): boolean {
  if (state && !state.split(',').includes(stateOf(sandbox))) return false;
  // Published clients encode keys and values before they make a query of them.
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
