import type { FastifyInstance } from 'fastify';

/** Whether the daemon answers; open to everybody. */
export function healthRoutes(app: FastifyInstance): void {
  app.get('/health', (_request, reply) => reply.code(204).send());
}
