import type { FastifyInstance } from 'fastify';
import { requireKey } from './key.ts';
import type { Operations } from './operations.ts';

export interface SelfParts {
  readonly operations: Operations;
  readonly apiKey: string;
  /** The gateway's own figures in Prometheus' text format. */
  readonly metrics: () => Promise<{ readonly contentType: string; readonly text: string }>;
}

/** The gateway itself: `/health` and `/metrics` are operations of the daemons, so it has names of its own. */
export function selfRoutes(app: FastifyInstance, { operations, metrics, apiKey }: SelfParts): void {
  app.get('/gateway/health', async (_request, reply) => {
    // It is of use only while it knows where the sandboxes are.
    await operations.look('health').catch(ignoreUnknown);
    return reply.code(204).send();
  });
  app.register((scope, _options, done) => {
    requireKey(scope, apiKey);
    scope.get('/gateway/metrics', async (_request, reply) => {
      const { contentType, text } = await metrics();
      return reply.header('content-type', contentType).send(text);
    });
    done();
  });
}

function ignoreUnknown(error: unknown): void {
  if (!(error instanceof Error && 'kind' in error && error.kind === 'not_found')) throw error;
}
